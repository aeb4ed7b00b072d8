#include "trainer_worker/losses/token_losses.h"

#include "common/base/status.h"
#include "trainer_worker/losses/portable_math.h"

namespace tandem {
namespace {

// The global count if it is given, else the local one, which is right only with one rank.
absl::StatusOr<at::Tensor> Denominator(const std::optional<double>& global,
                                       const at::Tensor& local,
                                       const LossScale& scale,
                                       const char* what) {
  if (global.has_value()) return at::scalar_tensor(*global, local.options());
  if (scale.dp_size > 1) {
    return InvalidArgument("loss_agg_mode={} over {} ranks needs the global number of {}",
                           scale.mode, scale.dp_size, what);
  }
  return local;
}

absl::StatusOr<at::Tensor> BaseKl(const at::Tensor& difference, const std::string& name) {
  if (name == "kl" || name == "k1") return difference;
  if (name == "abs") return difference.abs();
  if (name == "mse" || name == "k2") return 0.5 * difference.square();
  if (name == "low_var_kl" || name == "k3") {
    const at::Tensor reverse = at::clamp(-difference, -20, 20);
    return at::clamp(PortableExp(reverse) - reverse - 1, -10, 10);
  }
  return InvalidArgument(
      "KL estimator \"{}\" is unknown; use kl, k1, abs, mse, k2, low_var_kl or k3, or one of them "
      "with a + for k2's gradient",
      name);
}

}  // namespace

at::Tensor MaskedSum(const at::Tensor& values, const at::Tensor& mask) {
  const at::Tensor valid = at::where(mask.to(at::kBool), values, at::zeros({}, values.options()));
  return FixedSum(valid * mask);
}

absl::StatusOr<at::Tensor> AggregateLoss(const at::Tensor& loss,
                                         const at::Tensor& mask,
                                         const at::Tensor& rows,
                                         int64_t num_rows,
                                         const LossScale& scale) {
  const double ranks = static_cast<double>(scale.dp_size);
  const at::Tensor weights = mask.to(loss.dtype());
  if (scale.mode == "token-sum") return MaskedSum(loss, weights) * ranks;
  if (scale.mode == "token-mean") {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor tokens,
                            Denominator(scale.batch_tokens, weights.sum(), scale, "tokens"));
    return MaskedSum(loss, weights) / tokens * ranks;
  }
  const bool token_mean = scale.mode == "seq-mean-token-mean";
  const bool norm = scale.mode == "seq-mean-token-sum-norm";
  if (!token_mean && !norm && scale.mode != "seq-mean-token-sum") {
    return InvalidArgument("loss_agg_mode \"{}\" is unknown", scale.mode);
  }
  const at::Tensor valid =
      at::where(mask.to(at::kBool), loss * weights, at::zeros({}, loss.options()));
  at::Tensor sums = FixedRowSum(valid, rows, num_rows);
  const at::Tensor counts = FixedRowSum(weights, rows, num_rows);
  if (token_mean) sums = sums / (counts + 1e-8);
  const at::Tensor present = (counts > 0).to(loss.dtype());
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor samples,
                          Denominator(scale.batch_samples, present.sum(), scale, "samples"));
  const at::Tensor mean = MaskedSum(sums, present) / samples * ranks;
  if (!norm) return mean;
  return mean / scale.loss_scale_factor.value_or(scale.horizon);
}

absl::StatusOr<at::Tensor> KlPenalty(const at::Tensor& log_probs,
                                     const at::Tensor& ref_log_probs,
                                     const std::string& name) {
  const bool straight_through = !name.empty() && name.back() == '+';
  const at::Tensor difference = log_probs - ref_log_probs;
  TANDEM_ASSIGN_OR_RETURN(
      const at::Tensor value,
      BaseKl(difference, straight_through ? name.substr(0, name.size() - 1) : name));
  if (!straight_through) return value;
  const at::Tensor carrier = 0.5 * difference.square();
  return carrier - carrier.detach() + value.detach();
}

}  // namespace tandem
