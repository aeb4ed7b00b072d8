// A trainer's weights in a GPU's memory.
#pragma once

#include <cstdint>

#include "common/base/check.h"
#include "common/base/numeric.h"
#include "common/device/cuda/cuda_context.h"
#include "tests/fakes/memory_weights.h"

namespace tandem::testing {

// Side by side in one allocation, as a single rank's shard has them. What the host has of them
// counts: it goes to the device again whenever their digests are taken.
class DeviceWeights : public MemoryWeights {
 public:
  enum class Use { kGathered, kShared };
  // `layout` and `context` outlive it.
  DeviceWeights(const WeightLayout& layout, uint64_t seed, CudaContext* context, Use use)
      : MemoryWeights(layout, seed), layout_(layout), context_(context), use_(use) {
    for (const TensorPlace& place : layout.places()) {
      shared_.offsets.push_back(shared_.shard.bytes);
      shared_.shard.bytes += Bytes(layout, place);
    }
    // A handle opens a whole block of the driver's.
    const auto memory = context->api().Malloc(RoundUp(shared_.shard.bytes, int64_t{2} << 20));
    TANDEM_CHECK(memory.ok(), memory.status().ToString());
    shared_.shard.data = *memory;
  }
  ~DeviceWeights() { context_->api().Free(shared_.shard.data).IgnoreError(); }

  absl::StatusOr<std::vector<Digest>> Digests() override {
    for (size_t t = 0; t < shared_.offsets.size(); ++t) {
      const TensorPlace& place = layout_.places()[t];
      context_->Copy(shared_.shard.data + shared_.offsets[t], tensor(place.name),
                     Bytes(layout_, place));
    }
    TANDEM_RETURN_IF_ERROR(context_->Synchronize());
    return MemoryWeights::Digests();
  }
  absl::StatusOr<const void*> Gather(const TensorPlace& place) override {
    TANDEM_RETURN_IF_ERROR(MemoryWeights::Gather(place).status());
    const auto index = static_cast<size_t>(&place - layout_.places().data());
    return static_cast<const void*>(shared_.shard.data + shared_.offsets[index]);
  }
  const SharedTensors* shared() const override { return use_ == Use::kShared ? &shared_ : nullptr; }

 private:
  const WeightLayout& layout_;
  CudaContext* const context_;
  const Use use_;
  SharedTensors shared_;
};

}  // namespace tandem::testing
