// Attention of the GPU backend, and sequences that pass through it in pieces.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/device/cuda/cuda_context.h"
#include "common/ops/cuda/attention/attention.h"
#include "tests/common/ops/cuda/test_cuda.h"
#include "tests/common/ops/ops_fixture.h"
#include "tests/emulator/scoped_seed.h"

namespace tandem::testing {

// Aborts if anything failed on its device.
class TestAttention {
 public:
  explicit TestAttention(std::unique_ptr<CudaApi> cuda = OpenTestCuda());
  ~TestAttention();
  CudaAttention* operator->() { return &attention_; }
  CudaContext& context() { return *context_; }

 private:
  std::unique_ptr<CudaApi> cuda_;
  std::unique_ptr<CudaContext> context_;
  CudaAttention attention_;
};

// A pool whose every byte is 0xff: NaN.
class GarbageKv : public TestKv {
 public:
  GarbageKv(const AttentionShape& shape, int64_t num_blocks, uint32_t seed);
};

// The rows of a sequence, unrotated, in bf16.
TestMatrix RandomQkv(const AttentionShape& shape, int64_t tokens, uint32_t seed);
TestMatrix InFloat(const TestMatrix& matrix);

// Attention's result for the rows from `first` on, of a sequence whose rows before have been
// through RopeAndStore, in spans of `chunk` rows, one call each.
TestMatrix RunInChunks(TestAttention& attention,
                       const AttentionShape& shape,
                       const RopeTable& rope,
                       const TestMatrix& source,
                       int64_t first,
                       int64_t chunk,
                       KvLayer kv,
                       const std::vector<int32_t>& blocks);

}  // namespace tandem::testing
