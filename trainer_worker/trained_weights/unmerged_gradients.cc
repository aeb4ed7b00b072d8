#include "trainer_worker/trained_weights/unmerged_gradients.h"

#include <fmt/format.h>

#include "common/base/status_macros.h"

namespace tandem {

UnmergedGradients::UnmergedGradients(const ModelSpec& spec, LoraWeights* weights)
    : products_(AdaptedProducts(spec)), weights_(weights) {}

absl::StatusOr<std::unique_ptr<UnmergedGradients>> UnmergedGradients::Create(
    const ModelSpec& spec,
    LoraWeights* weights,
    OrderedCommunicator* communicator,
    Ledger* ledger) {
  std::unique_ptr<UnmergedGradients> gradients(new UnmergedGradients(spec, weights));
  TANDEM_ASSIGN_OR_RETURN(gradients->sums_, RankSums::Create(weights, communicator, ledger));
  return gradients;
}

void UnmergedGradients::Choose(int layer, LayerGradients* view) const {
  *view = {};
  LinearAdapterGradients* const products[] = {&view->qkv_adapter, &view->o_adapter,
                                              &view->gate_up_adapter, &view->down_adapter};
  const std::vector<LoraTarget>& targets = weights_->spec().targets;
  for (size_t i = 0; i < products_.size(); ++i) {
    for (size_t part = 0; part < products_[i].modules.size(); ++part) {
      const std::string weight =
          fmt::format("model.layers.{}.{}.weight", layer, products_[i].modules[part]);
      const LoraTarget* const target = weights_->spec().Find(weight);
      if (target == nullptr) continue;
      const auto index = static_cast<size_t>(target - targets.data());
      products[i]->a[part] = sums_->Of(index, LoraMatrix::kA);
      products[i]->b[part] = sums_->Of(index, LoraMatrix::kB);
    }
  }
}

}  // namespace tandem
