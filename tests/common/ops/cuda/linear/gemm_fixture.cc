#include "tests/common/ops/cuda/linear/gemm_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "common/types/tensor_view.h"

namespace tandem::testing {
namespace {

float Bf16At(const void* data, int64_t index) {
  return FromBf16(static_cast<const uint16_t*>(data)[index]);
}

}  // namespace

DeviceMatrix::DeviceMatrix(int64_t rows, int64_t cols, int64_t stride, float gap)
    : rows_(rows),
      cols_(cols),
      stride_(stride == 0 ? (cols + 7) / 8 * 8 : stride),
      gap_(ToBf16(gap)) {
  chunks_.resize(static_cast<size_t>(std::max<int64_t>(rows_ * stride_ / 8, 1)));
  std::fill_n(data(), rows_ * stride_, gap_);
}

DeviceMatrix DeviceMatrix::Random(
    int64_t rows, int64_t cols, uint32_t seed, int64_t stride, float gap) {
  DeviceMatrix matrix(rows, cols, stride, gap);
  std::mt19937 random(seed);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      matrix.Set(row, col, static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f);
    }
  }
  return matrix;
}

uint16_t* DeviceMatrix::data() const { return chunks_.data()->elements; }

float DeviceMatrix::At(int64_t row, int64_t col) const {
  return FromBf16(data()[row * stride_ + col]);
}

void DeviceMatrix::Set(int64_t row, int64_t col, float value) {
  data()[row * stride_ + col] = ToBf16(value);
}

Matrix DeviceMatrix::Rows(int64_t first, int64_t count) const {
  return {data() + first * stride_, count, cols_, stride_};
}

LinearWeight DeviceMatrix::weight(const DeviceMatrix* bias) const {
  return {reinterpret_cast<const std::byte*>(data()), rows_, cols_,
          bias == nullptr ? nullptr : bias->data()};
}

bool DeviceMatrix::SameRow(int64_t row, const DeviceMatrix& other, int64_t other_row) const {
  return std::memcmp(data() + row * stride_, other.data() + other_row * other.stride_,
                     static_cast<size_t>(cols_) * 2) == 0;
}

int64_t DeviceMatrix::ChangedGaps() const {
  int64_t changed = 0;
  for (int64_t row = 0; row < rows_; ++row) {
    for (int64_t col = cols_; col < stride_; ++col) {
      changed += data()[row * stride_ + col] != gap_ ? 1 : 0;
    }
  }
  return changed;
}

std::vector<float> PlainProduct(const Gemm& gemm) {
  const bool transposed_a = gemm.kind == GemmKind::kWeights;
  const bool transposed_b = gemm.kind != GemmKind::kForward;
  std::vector<float> product(static_cast<size_t>(gemm.m * gemm.n));
  for (int64_t i = 0; i < gemm.m; ++i) {
    for (int64_t j = 0; j < gemm.n; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < gemm.k; ++k) {
        const int64_t at_a = transposed_a ? k * gemm.a_stride + i : i * gemm.a_stride + k;
        const int64_t at_b = transposed_b ? k * gemm.b_stride + j : j * gemm.b_stride + k;
        sum += Bf16At(gemm.a, at_a) * Bf16At(gemm.b, at_b);
      }
      if (gemm.bias != nullptr) sum += Bf16At(gemm.bias, j);
      product[static_cast<size_t>(i * gemm.n + j)] = sum;
    }
  }
  return product;
}

float WorstError(const Gemm& gemm, const std::vector<float>& before) {
  const std::vector<float> product = PlainProduct(gemm);
  const bool bf16 = gemm.output == GemmOutput::kBf16;
  float worst = 0;
  for (int64_t i = 0; i < gemm.m; ++i) {
    for (int64_t j = 0; j < gemm.n; ++j) {
      const size_t at = static_cast<size_t>(i * gemm.n + j);
      const float expected = product[at] + (before.empty() ? 0.0f : before[at]);
      const int64_t place = i * gemm.c_stride + j;
      const float found = bf16 ? Bf16At(gemm.c, place) : static_cast<const float*>(gemm.c)[place];
      // Terms are below 1: partial sums of k of them stay below k, and each addition is off by half
      // a unit in the last place of those.
      const float tolerance =
          static_cast<float>(gemm.k + 2) * 0x1p-22f + (bf16 ? std::fabs(expected) * 0x1p-8f : 0.0f);
      if (std::isnan(found)) return found;
      worst = std::max(worst, std::fabs(found - expected) / tolerance);
    }
  }
  return worst;
}

}  // namespace tandem::testing
