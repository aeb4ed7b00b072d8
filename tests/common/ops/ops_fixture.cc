#include "tests/common/ops/ops_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "common/base/check.h"
#include "common/ops/cpu/packed_weight.h"
#include "common/process/threads.h"

namespace tandem::testing {

TestMatrix::TestMatrix(DType dtype, int64_t rows, int64_t cols)
    : dtype_(dtype),
      rows_(rows),
      cols_(cols),
      bytes_(static_cast<size_t>(rows * cols) * DTypeBytes(dtype)) {}

TestMatrix TestMatrix::Random(DType dtype, int64_t rows, int64_t cols, uint32_t seed, float scale) {
  TestMatrix matrix(dtype, rows, cols);
  std::mt19937 random(seed);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      const float unit = static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f;
      matrix.Set(i, j, unit * scale);
    }
  }
  return matrix;
}

float TestMatrix::At(int64_t row, int64_t col) const {
  const size_t index = static_cast<size_t>(row * cols_ + col);
  if (dtype_ == DType::kFloat32) return reinterpret_cast<const float*>(bytes_.data())[index];
  return FromBf16(reinterpret_cast<const Bf16*>(bytes_.data())[index]);
}

void TestMatrix::Set(int64_t row, int64_t col, float value) {
  const size_t index = static_cast<size_t>(row * cols_ + col);
  if (dtype_ == DType::kFloat32) {
    reinterpret_cast<float*>(bytes_.data())[index] = value;
  } else {
    reinterpret_cast<Bf16*>(bytes_.data())[index] = ToBf16(value);
  }
}

Matrix TestMatrix::view() const { return Rows(0, rows_); }

Matrix TestMatrix::Rows(int64_t first, int64_t count) const {
  const size_t offset = static_cast<size_t>(first * cols_) * DTypeBytes(dtype_);
  return {bytes_.data() + offset, count, cols_, cols_};
}

bool TestMatrix::SameRow(int64_t row, const TestMatrix& other, int64_t other_row) const {
  const size_t row_bytes = static_cast<size_t>(cols_) * DTypeBytes(dtype_);
  return std::memcmp(bytes_.data() + static_cast<size_t>(row) * row_bytes,
                     other.bytes_.data() + static_cast<size_t>(other_row) * row_bytes,
                     row_bytes) == 0;
}

TestWeight::TestWeight(
    DType dtype, int64_t n, int64_t k, uint32_t seed, float scale, bool with_bias)
    : source(TestMatrix::Random(dtype, n, k, seed, scale)),
      bias(TestMatrix::Random(dtype, 1, n, seed + 1)),
      has_bias(with_bias),
      packed(static_cast<size_t>(PackedBytes(n, k, dtype))) {
  Pack();
}

void TestWeight::Pack() {
  PackRows(packed.data(), source.cols(), source.dtype(), 0, source.rows(), source.data());
}

LinearWeight TestWeight::view() const {
  return {packed.data(), source.rows(), source.cols(), has_bias ? bias.data() : nullptr};
}

TestKv::TestKv(const AttentionShape& shape, DType dtype, int64_t num_blocks, uint32_t seed)
    : num_blocks_(num_blocks),
      bytes_(static_cast<size_t>(num_blocks * KvBlockBytes(shape, dtype))) {
  for (int64_t i = 0; i < num_blocks; ++i) free_.push_back(static_cast<int32_t>(i));
  std::mt19937 random(seed);
  std::shuffle(free_.begin(), free_.end(), random);
}

KvLayer TestKv::view() { return {bytes_.data(), num_blocks_}; }

std::vector<int32_t> TestKv::Take(int64_t tokens) {
  const auto count = static_cast<size_t>(KvBlocksFor(tokens));
  TANDEM_CHECK(free_.size() >= count, "the test asks for more KV blocks than it made");
  std::vector<int32_t> blocks(free_.end() - static_cast<std::ptrdiff_t>(count), free_.end());
  free_.resize(free_.size() - count);
  return blocks;
}

ForcedIsa::ForcedIsa(const std::string& name) {
  if (name.empty()) {
    unsetenv("TANDEM_CPU_ISA");
  } else {
    setenv("TANDEM_CPU_ISA", name.c_str(), 1);
  }
}
ForcedIsa::~ForcedIsa() { unsetenv("TANDEM_CPU_ISA"); }

std::unique_ptr<ForwardOps> MakeForward(DType dtype, int threads) {
  absl::StatusOr<std::unique_ptr<ForwardOps>> ops =
      CreateCpuForwardOps(dtype, std::make_shared<ThreadPool>(threads));
  TANDEM_CHECK(ops.ok(), std::string(ops.status().message()));
  return std::move(ops).value();
}

std::unique_ptr<BackwardOps> MakeBackward(DType dtype, int threads) {
  absl::StatusOr<std::unique_ptr<BackwardOps>> ops =
      CreateCpuBackwardOps(dtype, std::make_shared<ThreadPool>(threads));
  TANDEM_CHECK(ops.ok(), std::string(ops.status().message()));
  return std::move(ops).value();
}

std::vector<std::string> RunnableIsas(const std::string& numerics) {
  std::vector<std::string> names;
  for (const std::string name : {"amx", "amx-emulated", "avx512bf16", "avx512f", "avx2"}) {
    const ForcedIsa forced(name);
    const auto ops = CreateCpuForwardOps(DType::kBFloat16, std::make_shared<ThreadPool>(1));
    if (ops.ok() && (*ops)->numerics_class() == "cpu-" + numerics + "-bf16") names.push_back(name);
  }
  return names;
}

std::vector<std::string> RunnableIsas() {
  std::vector<std::string> isas = RunnableIsas("seq");
  for (const std::string& isa : RunnableIsas("amx32")) isas.push_back(isa);
  TANDEM_CHECK(!isas.empty(), "no kernel set of a known class runs on this machine");
  return isas;
}

TestMatrix Gather(const TestMatrix& from, const std::vector<int64_t>& rows) {
  TestMatrix to(from.dtype(), std::ssize(rows), from.cols());
  const size_t bytes = static_cast<size_t>(from.cols()) * DTypeBytes(from.dtype());
  for (int64_t i = 0; i < to.rows(); ++i) {
    std::memcpy(to.Rows(i, 1).data, from.Rows(rows[static_cast<size_t>(i)], 1).data, bytes);
  }
  return to;
}

RopeTable TestRope(int64_t head_dim, int64_t max_positions) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < head_dim; i += 2) {
    frequencies.push_back(static_cast<float>(
        std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(head_dim))));
  }
  return MakeRopeTable(frequencies, max_positions);
}

}  // namespace tandem::testing
