// Products for the tests of the CUDA matrix engines, and plain loops to compare them with.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ops/cuda/linear/gemm.h"
#include "common/ops/ops_types.h"

namespace tandem::testing {

// A bf16 matrix whose rows are `stride` elements apart, with `gap` in all elements that nobody set;
// aligned to 16. Stride 0: the columns, rounded up to a multiple of 8.
class DeviceMatrix {
 public:
  DeviceMatrix(int64_t rows, int64_t cols, int64_t stride = 0, float gap = 0.0f);
  // Uniform in (-1, 1).
  static DeviceMatrix Random(
      int64_t rows, int64_t cols, uint32_t seed, int64_t stride = 0, float gap = 0.0f);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t stride() const { return stride_; }
  float At(int64_t row, int64_t col) const;
  void Set(int64_t row, int64_t col, float value);
  uint16_t* data() const;
  Matrix Rows(int64_t first, int64_t count) const;
  Matrix view() const { return Rows(0, rows_); }
  LinearWeight weight(const DeviceMatrix* bias = nullptr) const;
  // Row `row` here against row `other_row` there, bit by bit.
  bool SameRow(int64_t row, const DeviceMatrix& other, int64_t other_row) const;
  // Elements between cols and stride that are not what they were.
  int64_t ChangedGaps() const;

 private:
  struct alignas(16) Chunk {
    uint16_t elements[8];
  };
  int64_t rows_, cols_, stride_;
  uint16_t gap_;
  mutable std::vector<Chunk> chunks_;
};

// fp32 loops over the operands of `gemm`, k ascending, and the bias; what c held is left out.
std::vector<float> PlainProduct(const Gemm& gemm);
// The largest |c - (before + product)| in units of what one rounding of c to its dtype and fp32
// sums in another order may differ by. NaN where c has one. `before` may be empty.
float WorstError(const Gemm& gemm, const std::vector<float>& before);

}  // namespace tandem::testing
