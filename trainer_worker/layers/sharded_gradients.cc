#include "trainer_worker/layers/sharded_gradients.h"

#include <utility>

#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/memory/worker_memory.h"
#include "trainer_worker/shard/shard_array.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<ShardedGradients>> ShardedGradients::Create(
    ParameterShard* shard, OrderedCommunicator* communicator, Ledger* ledger) {
  std::unique_ptr<ShardedGradients> scatter(new ShardedGradients);
  scatter->shard_ = shard;
  scatter->communicator_ = communicator;
  if (scatter->solo()) return scatter;
  const WeightLayout& layout = shard->plan().layout();
  Device* const device = shard->device();
  const int64_t buffers = GradientBuffers(layout.num_layers(), !device->is_host());
  scatter->sums_.resize(static_cast<size_t>(buffers));
  const auto bytes = [&layout](int layer) {
    return layout.group_elements(layer) * static_cast<int64_t>(sizeof(float));
  };
  TANDEM_ASSIGN_OR_RETURN(scatter->globals_, device->Reserve("gradients", bytes(-1), ledger));
  TANDEM_ASSIGN_OR_RETURN(scatter->layers_,
                          device->Reserve("gradients", buffers * bytes(0), ledger));
  return scatter;
}

ShardedGradients::~ShardedGradients() { WaitForAll(); }

void ShardedGradients::WaitForAll() {
  const OutsideWait wait;  // the communication thread is watched itself
  for (Result& sum : sums_) {
    if (sum.valid()) std::exchange(sum, Result()).wait();
  }
}

absl::Status ShardedGradients::Await(Result& sum) {
  const OutsideWait wait;
  return sum.valid() ? std::exchange(sum, Result()).get() : absl::OkStatus();
}

absl::Status ShardedGradients::Begin() {
  if (solo()) return absl::OkStatus();
  WaitForAll();
  if (globals_->mapped()) Zero(-1);
  TANDEM_RETURN_IF_ERROR(globals_->Map());
  return layers_->Map();
}

float* ShardedGradients::Address(int layer) const {
  if (layer < 0) return reinterpret_cast<float*>(globals_->data());
  const int64_t elements = shard_->plan().layout().group_elements(layer);
  return reinterpret_cast<float*>(layers_->data()) +
         static_cast<int64_t>(BufferOf(layer)) * elements;
}

absl::StatusOr<float*> ShardedGradients::Group(int layer) {
  if (solo()) return shard_->gradients() + shard_->plan().group_offset(layer, 0);
  if (layer < 0) return Address(layer);
  TANDEM_RETURN_IF_ERROR(Await(sums_[BufferOf(layer)]));
  Zero(layer);
  return Address(layer);
}

void ShardedGradients::Zero(int layer) {
  const int64_t elements = shard_->plan().layout().group_elements(layer);
  shard_->device()->Zero(Address(layer), elements * static_cast<int64_t>(sizeof(float)));
}

std::vector<ScatteredSum> ShardedGradients::SumsOf(int layer) const {
  const ShardPlan& plan = shard_->plan();
  const ShardPlan::Group tensors = plan.group(layer);
  std::vector<ScatteredSum> sums;
  for (size_t tensor = tensors.first; tensor < tensors.last; ++tensor) {
    sums.push_back({Address(layer) + plan.tensors()[tensor]->gradient_offset,
                    plan.CountsPerRank(tensor), shard_->gradients() + plan.mine(tensor).offset});
  }
  return sums;
}

absl::Status ShardedGradients::Reduce(int layer) {
  if (solo()) return absl::OkStatus();
  // The sum is not started in the background, as a CPU's cores are busy with the layer before.
  if (shard_->device()->is_host()) {
    return communicator_->ReduceScatterSums(SumsOf(layer), Accumulate::kAdd);
  }
  sums_[BufferOf(layer)] =
      communicator_->Submit([sums = SumsOf(layer)](Communicator& group) -> absl::Status {
        return group.ReduceScatterSums(sums, Accumulate::kAdd);
      });
  return absl::OkStatus();
}

absl::Status ShardedGradients::Finish() {
  if (solo()) return absl::OkStatus();
  for (Result& sum : sums_) TANDEM_RETURN_IF_ERROR(Await(sum));
  return communicator_->ReduceScatterSums(SumsOf(-1), Accumulate::kAdd);
}

absl::Status ShardedGradients::Release() {
  if (solo()) return absl::OkStatus();
  WaitForAll();
  TANDEM_RETURN_IF_ERROR(LogReleaseFailure(globals_->Release()));
  return LogReleaseFailure(layers_->Release());
}

}  // namespace tandem
