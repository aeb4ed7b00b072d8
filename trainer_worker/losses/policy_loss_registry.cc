#include "trainer_worker/losses/policy_loss_registry.h"

#include <absl/strings/str_join.h>

#include "common/base/status.h"
#include "trainer_worker/losses/portable_math.h"

namespace tandem {

#define TANDEM_REGISTERED(symbol, name) extern const PolicyLoss symbol;
#include "policy_losses.inc"
#undef TANDEM_REGISTERED

namespace {

struct NamedLoss {
  const char* name;
  const PolicyLoss* loss;
};

constexpr NamedLoss kLosses[] = {
#define TANDEM_REGISTERED(symbol, name) {name, &symbol},
#include "policy_losses.inc"
#undef TANDEM_REGISTERED
};

}  // namespace

absl::StatusOr<const PolicyLoss*> FindPolicyLoss(const std::string& name) {
  for (const NamedLoss& loss : kLosses) {
    if (name == loss.name) return loss.loss;
  }
  return InvalidArgument("actor.policy_loss.loss_mode \"{}\" is unknown; use one of {}", name,
                         absl::StrJoin(PolicyLossNames(), ", "));
}

std::vector<std::string> PolicyLossNames() {
  std::vector<std::string> names;
  for (const NamedLoss& loss : kLosses) names.emplace_back(loss.name);
  return names;
}

at::Tensor ClampedLogRatio(const LossTensors& tensors) {
  return at::clamp(tensors.log_probs - tensors.old_log_probs, -20.0, 20.0);
}

at::Tensor ClipRatio(const at::Tensor& ratio, const PolicyLossOptions& options) {
  return at::clamp(ratio, 1 - options.clip_ratio_low, 1 + options.clip_ratio_high);
}

at::Tensor RowSums(const at::Tensor& values, const LossTensors& tensors) {
  const at::Tensor valid =
      at::where(tensors.mask.to(at::kBool), values, at::zeros({}, values.options()));
  return FixedRowSum(valid, tensors.rows, tensors.num_rows);
}

}  // namespace tandem
