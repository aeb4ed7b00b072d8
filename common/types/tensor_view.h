// A tensor owned by another object: pointer, dtype, shape, strides. Ops, comm, weights and formats
// exchange it, so that none of them needs LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tandem {

enum class DType { kFloat32, kBFloat16, kFloat16, kInt64, kInt32, kUInt8, kBool };

size_t DTypeBytes(DType dtype);
// The safetensors spelling: "F32", "BF16", "F16", "I64", "I32", "U8", "BOOL".
std::string DTypeName(DType dtype);
// InvalidArgument names the unknown spelling.
absl::StatusOr<DType> ParseDType(const std::string& name);

// Elements of a shape; an empty shape is a scalar (1).
int64_t NumElements(const std::vector<int64_t>& shape);
// "[49152, 576]"
std::string ShapeText(const std::vector<int64_t>& shape);

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements; empty means row-major and dense

  int64_t elements() const { return NumElements(shape); }
  size_t bytes() const { return static_cast<size_t>(elements()) * DTypeBytes(dtype); }
  bool dense() const { return strides.empty(); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// bf16 is carried as its 16 bits.
using Bf16 = uint16_t;
// Rounds to nearest even; NaN stays NaN.
Bf16 ToBf16(float value);
float FromBf16(Bf16 value);
float FromFloat16(uint16_t bits);

// F32, BF16 or F16, the dtypes in which a model weight may be stored.
bool IsFloat(DType dtype);

// Converts `count` elements, rounding to nearest even where the target is narrower. `from_type` is
// F32, BF16 or F16, `to_type` F32 or BF16; anything else is InvalidArgument. `from` needs no
// alignment (safetensors promises none); the two must not overlap.
absl::Status ConvertElements(
    const void* from, DType from_type, void* to, DType to_type, size_t count);

}  // namespace tandem
