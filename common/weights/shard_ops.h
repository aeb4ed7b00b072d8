// Operations on a rank's shard of the weights, on whichever device it is stored: they sum
// gradients, step, round and digest masters, and merge adapters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/ops/ops_types.h"
#include "common/weights/digest.h"

namespace tandem {

class ThreadPool;
struct LoraGradientBlock;
struct MergeBlock;

// Consecutive fp32 values.
struct FloatRange {
  const float* values = nullptr;
  int64_t count = 0;
};

// Masters that are consecutive elements of a tensor, the first of them at byte `offset` of it.
struct MasterRun {
  const float* masters = nullptr;
  int64_t count = 0;
  int64_t offset = 0;
};

// Values are addresses of the device, or of the host memory that the device reaches
// (Device::ReserveHost). Results written to memory are stream-ordered; returned values are ready.
// Elementwise results have the bits of the plain formula on every device; sums
// have an order that the counts alone decide. Not thread-safe: the engine thread's. Errors are the
// device's: on a CPU there are none.
class ShardOps {
 public:
  virtual ~ShardOps() = default;

  // To bf16, nearest even.
  virtual void Round(const float* values, Bf16* rounded, int64_t count) = 0;
  // `count` values, float32 or bfloat16 each, to nearest even.
  virtual void Convert(
      const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) = 0;
  // As MergeRows (common/lora/merge.h), with its bits on every device; the rule is kServed.
  virtual void Merge(const MergeBlock& block) = 0;
  // As tandem::AddLoraGradients (common/lora/lora_gradients.h), on a GPU in an order of its own,
  // which the shapes alone decide (cuda/adapter_kernels.h).
  virtual void AddLoraGradients(const LoraGradientBlock& block) = 0;
  // Of each range the sum of squares, in double.
  virtual absl::StatusOr<std::vector<double>> SumsOfSquares(
      const std::vector<FloatRange>& ranges) = 0;
  // One step over all elements; how many of `rounded` changed (0 without).
  virtual absl::StatusOr<int64_t> Step(const AdamWArrays& arrays, const AdamWFactors& factors) = 0;
  // For each run, the part of a digest over the masters' bytes in `dtype`. kBFloat16 means their
  // rounding, which need not be stored anywhere.
  virtual absl::StatusOr<std::vector<DigestRun>> Digest(const std::vector<MasterRun>& runs,
                                                        DType dtype) = 0;
  // Blocks of kSampleBytes out of `bytes` at `from`, one every `distance` bytes from the first on,
  // the last of them as far as it goes: into host memory, one after the other.
  virtual absl::Status ReadSample(const std::byte* from,
                                  int64_t bytes,
                                  int64_t distance,
                                  std::byte* to_host) = 0;
  static constexpr int64_t kSampleBytes = 64;
};

// Makes ops for values in host memory, which run on all threads of `pool`, the process's.
std::unique_ptr<ShardOps> CreateCpuShardOps(std::shared_ptr<ThreadPool> pool);

}  // namespace tandem
