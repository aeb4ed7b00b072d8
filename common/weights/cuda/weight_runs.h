// Ranges of tensors that one launch of weight_pass.h handles, and their digests.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_context.h"
#include "common/weights/cuda/weight_pass.h"
#include "common/weights/digest.h"

namespace tandem {

// Pairs of sums in device memory, one pair per tensor. Not thread-safe.
class DeviceSums {
 public:
  // ResourceExhausted: no memory. `context` outlives it.
  static absl::StatusOr<std::unique_ptr<DeviceSums>> Create(CudaContext* context, int64_t pairs);
  ~DeviceSums();
  DeviceSums(const DeviceSums&) = delete;
  DeviceSums& operator=(const DeviceSums&) = delete;

  uint64_t* data() const { return sums_; }
  int64_t pairs() const { return pairs_; }
  // Zeroes the first `pairs` sums, in stream order.
  absl::Status Clear(int64_t pairs);
  // Waits for the stream and returns the first `pairs` sums.
  absl::StatusOr<std::vector<BlockSums>> Read(int64_t pairs);

 private:
  DeviceSums(CudaContext* context, int64_t pairs) : context_(context), pairs_(pairs) {}
  CudaContext* const context_;
  const int64_t pairs_;
  uint64_t* sums_ = nullptr;
};

class WeightRuns {
 public:
  // Adds `bytes` of a tensor that start at byte `offset` of it. If they are digested, `offset` is a
  // multiple of 64, and so is `bytes` unless the run ends the tensor. `sums`: index of the pair
  // that they add to.
  void Add(const void* from, void* to, int64_t bytes, int64_t offset = 0, int64_t sums = 0);
  // Enqueues in stream order. `sums` may be null: nothing is digested.
  absl::Status Launch(CudaContext& context, WeightPassKind kind, DeviceSums* sums = nullptr) const;

 private:
  std::vector<WeightRun> runs_;
  int64_t tiles_ = 0;
};

}  // namespace tandem
