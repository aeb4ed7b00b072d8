#include "common/model/activations.h"

#include "common/memory/activation_bytes.h"

namespace tandem {
namespace {

int64_t Stride(DType dtype, int64_t cols) {
  const auto element_bytes = static_cast<int64_t>(DTypeBytes(dtype));
  return RowBytes(cols, element_bytes) / element_bytes;
}

// Places matrices one after the other.
class Cursor {
 public:
  Cursor(std::byte* base, DType dtype, int64_t rows) : base_(base), dtype_(dtype), rows_(rows) {}
  Matrix Take(int64_t cols) {
    std::byte* at = base_ + used_;
    used_ += MatrixBytes(dtype_, rows_, cols);
    return PlaceMatrix(at, dtype_, rows_, cols);
  }

 private:
  std::byte* base_;
  DType dtype_;
  int64_t rows_;
  int64_t used_ = 0;
};

LayerActivations Place(const ModelSpec& spec, Cursor& cursor) {
  const auto cols = LayerActivationCols(spec);
  LayerActivations view;
  Matrix* const parts[] = {&view.norm1, &view.qkv,     &view.attn, &view.mid,
                           &view.norm2, &view.gate_up, &view.act};
  for (size_t i = 0; i < cols.size(); ++i) *parts[i] = cursor.Take(cols[i]);
  return view;
}

BackwardScratch PlaceScratch(const ModelSpec& spec, Cursor& cursor) {
  const auto cols = BackwardScratchCols(spec);
  BackwardScratch view;
  Matrix* const parts[] = {&view.dhidden, &view.dnorm, &view.dwide, &view.dinner, &view.qk};
  for (size_t i = 0; i < cols.size(); ++i) {
    if (cols[i] > 0) *parts[i] = cursor.Take(cols[i]);
  }
  return view;
}

}  // namespace

Matrix PlaceMatrix(std::byte* base, DType dtype, int64_t rows, int64_t cols) {
  return Matrix{base, rows, cols, Stride(dtype, cols)};
}

int64_t MatrixBytes(DType dtype, int64_t rows, int64_t cols) {
  return rows * Stride(dtype, cols) * static_cast<int64_t>(DTypeBytes(dtype));
}

LayerActivations PlaceLayerActivations(const ModelSpec& spec,
                                       DType dtype,
                                       int64_t rows,
                                       std::byte* base) {
  Cursor cursor(base, dtype, rows);
  return Place(spec, cursor);
}

BackwardScratch PlaceBackwardScratch(const ModelSpec& spec,
                                     DType dtype,
                                     int64_t rows,
                                     std::byte* base) {
  Cursor cursor(base, dtype, rows);
  return PlaceScratch(spec, cursor);
}

Matrix Columns(Matrix matrix, DType dtype, int64_t first, int64_t cols) {
  matrix.data =
      static_cast<std::byte*>(matrix.data) + first * static_cast<int64_t>(DTypeBytes(dtype));
  matrix.cols = cols;
  return matrix;
}

Matrix Rows(Matrix matrix, DType dtype, int64_t row0, int64_t rows) {
  matrix.data = static_cast<std::byte*>(matrix.data) +
                row0 * matrix.stride * static_cast<int64_t>(DTypeBytes(dtype));
  matrix.rows = rows;
  return matrix;
}

}  // namespace tandem
