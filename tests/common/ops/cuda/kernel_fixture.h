// What the tests of kernels share: seeds of the emulator, comparisons of arrays.
#pragma once

#include <cstring>
#include <vector>

#include "tests/common/ops/ops_fixture.h"
#include "tests/emulator/scoped_seed.h"

namespace tandem::testing {

inline std::vector<float> RandomFloats(int64_t rows,
                                       int64_t cols,
                                       uint32_t seed,
                                       float scale = 1.0f) {
  const TestMatrix matrix = TestMatrix::Random(DType::kFloat32, rows, cols, seed, scale);
  const auto* data = static_cast<const float*>(matrix.data());
  return {data, data + rows * cols};
}
inline FloatMatrix View(std::vector<float>& values, int64_t rows) {
  const auto cols = static_cast<int64_t>(values.size()) / rows;
  return {values.data(), rows, cols, cols};
}
template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
// `cols` columns of a bf16 matrix from `first` on.
inline Matrix Part(Matrix matrix, int64_t first, int64_t cols) {
  matrix.data = static_cast<uint16_t*>(matrix.data) + first;
  matrix.cols = cols;
  return matrix;
}

}  // namespace tandem::testing
