#include "trainer_worker/losses/value_loss.h"

#include "common/base/status_macros.h"
#include "trainer_worker/losses/token_losses.h"

namespace tandem {

absl::StatusOr<ValueLossResult> ValueLoss(const ValueTensors& tensors,
                                          double cliprange,
                                          const LossScale& scale) {
  const at::Tensor near = at::max(at::min(tensors.values, tensors.old_values + cliprange),
                                  tensors.old_values - cliprange);
  const at::Tensor plain = (tensors.values - tensors.returns).square();
  const at::Tensor clipped = (near - tensors.returns).square();
  TANDEM_ASSIGN_OR_RETURN(
      const at::Tensor sum,
      AggregateLoss(at::max(plain, clipped), tensors.mask, tensors.rows, tensors.num_rows, scale));
  ValueLossResult result{.loss = 0.5 * sum};
  const at::Tensor larger = at::gt(clipped, plain).to(at::kDouble);
  result.clipped_fraction = MaskedMean(larger, tensors.mask.to(at::kDouble)).item<double>();
  return result;
}

}  // namespace tandem
