// A single rank's rounded weights on a GPU, as a sync sends them: random ones.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_device.h"
#include "common/weights/shard_ops.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem::testing {

// Not thread-safe.
class BenchShard : public WeightSource {
 public:
  // Tensors side by side in the order of `layout` (bf16), which outlives the shard as `device`
  // does.
  static absl::StatusOr<std::unique_ptr<BenchShard>> Create(CudaDevice* device,
                                                            const WeightLayout* layout);

  // Masters of `seed` are made piece by piece, rounded into the shard and digested, as an optimizer
  // step does with its own; all of it is done on return.
  absl::Status Fill(uint64_t seed);
  // Whether a rollout may read it where it lies; else rows go through slots.
  void set_direct(bool direct) { direct_ = direct; }
  // One of its elements changes after it was digested.
  absl::Status Damage();

  absl::StatusOr<std::vector<Digest>> Digests() override { return digests_; }
  absl::StatusOr<const void*> GatherRows(const TensorRows& rows, std::byte* dest) override;
  const SharedTensors* shared() const override { return direct_ ? &shared_ : nullptr; }

 private:
  BenchShard(CudaDevice* device, const WeightLayout* layout) : device_(device), layout_(layout) {}
  absl::StatusOr<Digest> FillTensor(const TensorPlace& place, int64_t offset, uint64_t seed);

  CudaDevice* const device_;
  const WeightLayout* const layout_;
  std::unique_ptr<ShardOps> ops_;
  std::unique_ptr<ShareableMemory> memory_;
  std::unique_ptr<MemoryRegion> masters_;  // of one piece
  SharedTensors shared_;
  std::vector<Digest> digests_;
  bool direct_ = true;
};

}  // namespace tandem::testing
