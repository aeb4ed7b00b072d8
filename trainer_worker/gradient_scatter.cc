#include "trainer_worker/gradient_scatter.h"

#include <cstring>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

float* Floats(const std::unique_ptr<MemoryRegion>& region) {
  return reinterpret_cast<float*>(region->data());
}

}  // namespace

absl::StatusOr<std::unique_ptr<GradientScatter>> GradientScatter::Create(ParameterShard* shard,
                                                                         Communicator* communicator,
                                                                         Ledger* ledger) {
  std::unique_ptr<GradientScatter> scatter(new GradientScatter);
  scatter->shard_ = shard;
  scatter->communicator_ = communicator;
  if (scatter->solo()) return scatter;
  const WeightLayout& layout = shard->plan().layout();
  const auto bytes = [&layout](int layer) {
    return layout.group_elements(layer) * static_cast<int64_t>(sizeof(float));
  };
  TANDEM_ASSIGN_OR_RETURN(scatter->globals_, MemoryRegion::Reserve("gradients", bytes(-1), ledger));
  TANDEM_ASSIGN_OR_RETURN(scatter->layer_, MemoryRegion::Reserve("gradients", bytes(0), ledger));
  return scatter;
}

absl::Status GradientScatter::Begin() {
  if (solo()) return absl::OkStatus();
  if (globals_->mapped()) {
    const int64_t elements = shard_->plan().layout().group_elements(-1);
    std::memset(globals_->data(), 0, static_cast<size_t>(elements) * sizeof(float));
  }
  TANDEM_RETURN_IF_ERROR(globals_->Map());
  return layer_->Map();
}

float* GradientScatter::Group(int layer) {
  if (solo()) return shard_->gradients() + shard_->plan().group_offset(layer, 0);
  if (layer < 0) return Floats(globals_);
  const int64_t elements = shard_->plan().layout().group_elements(layer);
  std::memset(layer_->data(), 0, static_cast<size_t>(elements) * sizeof(float));
  return Floats(layer_);
}

absl::Status GradientScatter::Reduce(int layer) {
  if (solo()) return absl::OkStatus();
  const ShardPlan& plan = shard_->plan();
  const float* full = Floats(layer < 0 ? globals_ : layer_);
  const ShardPlan::Group tensors = plan.group(layer);
  for (size_t tensor = tensors.first; tensor < tensors.last; ++tensor) {
    TANDEM_RETURN_IF_ERROR(communicator_->ReduceScatterSum(
        full + plan.tensors()[tensor]->gradient_offset, plan.CountsPerRank(tensor),
        shard_->gradients() + plan.mine(tensor).offset, Accumulate::kAdd));
  }
  return absl::OkStatus();
}

absl::Status GradientScatter::Release() {
  if (solo()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(globals_->Release());
  return layer_->Release();
}

}  // namespace tandem
