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

// Masters of consecutive elements of a tensor; the first one is at byte `offset` of the tensor in
// the dtype that is digested.
struct MasterRun {
  const float* masters = nullptr;
  int64_t count = 0;
  int64_t offset = 0;
};

// Values are at addresses of the device, or in host memory that the device reaches
// (Device::ReserveHost). Results that are written to memory are stream-ordered; returned values are
// ready. Elementwise results have the bits of the plain formula on every device; the order of a sum
// depends on its counts alone. Not thread-safe: used by the engine thread. Errors are the device's:
// on a CPU there are none.
class ShardOps {
 public:
  virtual ~ShardOps() = default;

  // Rounds to bf16, nearest even.
  virtual void Round(const float* values, Bf16* rounded, int64_t count) = 0;
  // Converts `count` values between float32 and bfloat16, rounding to nearest even.
  virtual void Convert(
      const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) = 0;
  // Like MergeRows (common/lora/merge.h), with its bits on every device; the rule is kServed.
  virtual void Merge(const MergeBlock& block) = 0;
  // Like tandem::AddLoraGradients (common/lora/lora_gradients.h). A GPU sums in another order,
  // which depends only on the shapes (cuda/weight_pass.h).
  virtual void AddLoraGradients(const LoraGradientBlock& block) = 0;
  // The sum of squares of each range, in double.
  virtual absl::StatusOr<std::vector<double>> SumsOfSquares(
      const std::vector<FloatRange>& ranges) = 0;
  // One optimizer step over all elements. Returns how many elements of `rounded` changed; 0 if it
  // is null.
  virtual absl::StatusOr<int64_t> Step(const AdamWArrays& arrays, const AdamWFactors& factors) = 0;
  // For each run, the part of a digest over the masters' bytes in `dtype`. kBFloat16 means their
  // rounding, which need not be stored anywhere.
  virtual absl::StatusOr<std::vector<DigestRun>> Digest(const std::vector<MasterRun>& runs,
                                                        DType dtype) = 0;
  // Reads blocks of kSampleBytes of the `bytes` at `from`, one every `distance` bytes, the last one
  // possibly shorter, into consecutive host memory.
  virtual absl::Status ReadSample(const std::byte* from,
                                  int64_t bytes,
                                  int64_t distance,
                                  std::byte* to_host) = 0;
  static constexpr int64_t kSampleBytes = 64;
};

// Ops for values in host memory. They run on all threads of `pool`, which is the process's.
std::unique_ptr<ShardOps> CreateCpuShardOps(std::shared_ptr<ThreadPool> pool);

}  // namespace tandem
