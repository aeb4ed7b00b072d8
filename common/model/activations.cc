#include "common/model/activations.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr int64_t kAlignment = 64;

int64_t Stride(DType dtype, int64_t cols) {
  const int64_t per_line = kAlignment / static_cast<int64_t>(DTypeBytes(dtype));
  return (cols + per_line - 1) / per_line * per_line;
}

// Places matrices one after the other; with a null base it only counts.
class Cursor {
 public:
  Cursor(std::byte* base, DType dtype, int64_t rows) : base_(base), dtype_(dtype), rows_(rows) {}
  Matrix Take(int64_t cols) {
    std::byte* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += MatrixBytes(dtype_, rows_, cols);
    return PlaceMatrix(at, dtype_, rows_, cols);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  DType dtype_;
  int64_t rows_;
  int64_t used_ = 0;
};

LayerActivations Place(const ModelSpec& spec, Cursor& cursor) {
  LayerActivations view;
  view.norm1 = cursor.Take(spec.hidden_size);
  view.qkv = cursor.Take(spec.qkv_rows());
  view.attn = cursor.Take(spec.q_rows());
  view.mid = cursor.Take(spec.hidden_size);
  view.norm2 = cursor.Take(spec.hidden_size);
  view.gate_up = cursor.Take(2 * spec.intermediate_size);
  view.act = cursor.Take(spec.intermediate_size);
  return view;
}

BackwardScratch PlaceScratch(const ModelSpec& spec, Cursor& cursor) {
  BackwardScratch view;
  view.dhidden = cursor.Take(spec.hidden_size);
  view.dnorm = cursor.Take(spec.hidden_size);
  view.dwide = cursor.Take(std::max(2 * spec.intermediate_size, spec.qkv_rows()));
  view.dinner = cursor.Take(std::max(spec.intermediate_size, spec.q_rows()));
  if (spec.qk_norm) view.qk = cursor.Take(spec.q_rows() + spec.kv_rows());
  return view;
}

}  // namespace

Matrix PlaceMatrix(std::byte* base, DType dtype, int64_t rows, int64_t cols) {
  return Matrix{base, rows, cols, Stride(dtype, cols)};
}

int64_t MatrixBytes(DType dtype, int64_t rows, int64_t cols) {
  return rows * Stride(dtype, cols) * static_cast<int64_t>(DTypeBytes(dtype));
}

int64_t LayerActivationBytes(const ModelSpec& spec, DType dtype, int64_t rows) {
  Cursor cursor(nullptr, dtype, rows);
  Place(spec, cursor);
  return cursor.used();
}

LayerActivations PlaceLayerActivations(const ModelSpec& spec,
                                       DType dtype,
                                       int64_t rows,
                                       std::byte* base) {
  Cursor cursor(base, dtype, rows);
  return Place(spec, cursor);
}

int64_t BackwardScratchBytes(const ModelSpec& spec, DType dtype, int64_t rows) {
  Cursor cursor(nullptr, dtype, rows);
  PlaceScratch(spec, cursor);
  return cursor.used();
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
