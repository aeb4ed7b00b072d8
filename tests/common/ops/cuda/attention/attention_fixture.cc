#include "tests/common/ops/cuda/attention/attention_fixture.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/check.h"

namespace tandem::testing {

TestAttention::TestAttention(std::unique_ptr<CudaApi> cuda)
    : cuda_(std::move(cuda)),
      context_(*CudaContext::Create(cuda_.get(), 0)),
      attention_(context_.get()) {}

TestAttention::~TestAttention() {
  const absl::Status status = context_->Synchronize();
  TANDEM_CHECK(status.ok(), std::string(status.message()));
}

GarbageKv::GarbageKv(const AttentionShape& shape, int64_t num_blocks, uint32_t seed)
    : TestKv(shape, DType::kBFloat16, num_blocks, seed) {
  const int64_t bytes = num_blocks * KvBlockBytes(shape, DType::kBFloat16);
  std::memset(view().base, 0xff, static_cast<size_t>(bytes));
}

TestMatrix RandomQkv(const AttentionShape& shape, int64_t tokens, uint32_t seed) {
  // Scores spread over several units, as a trained model's do.
  return TestMatrix::Random(DType::kBFloat16, tokens, shape.qkv_cols(), seed, 1.5f);
}

TestMatrix InFloat(const TestMatrix& matrix) {
  TestMatrix copy(DType::kFloat32, matrix.rows(), matrix.cols());
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    for (int64_t j = 0; j < matrix.cols(); ++j) copy.Set(i, j, matrix.At(i, j));
  }
  return copy;
}

TestMatrix RunInChunks(TestAttention& attention,
                       const AttentionShape& shape,
                       const RopeTable& rope,
                       const TestMatrix& source,
                       int64_t first,
                       int64_t chunk,
                       KvLayer kv,
                       const std::vector<int32_t>& blocks) {
  TestMatrix qkv = source;
  TestMatrix out(DType::kBFloat16, source.rows() - first, shape.q_cols());
  for (int64_t row = first; row < source.rows(); row += chunk) {
    const int64_t rows = std::min(chunk, source.rows() - row);
    const std::vector<AttentionSpan> spans = {{0, rows, row, blocks.data()}};
    const Matrix part = qkv.Rows(row, rows);
    attention->RopeAndStore(part, shape, rope, spans, kv);
    attention->Forward(part, shape, spans, kv, out.Rows(row - first, rows));
  }
  // A device may still read what goes out of scope here.
  TANDEM_CHECK(attention.context().Synchronize().ok(), "attention in chunks");
  return out;
}

}  // namespace tandem::testing
