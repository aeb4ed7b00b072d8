#include "common/types/tensor_view.h"

#include <array>
#include <bit>
#include <utility>

#include "common/base/status_macros.h"

namespace tandem {
namespace {
struct DTypeEntry {
  DType dtype;
  const char* name;
  size_t bytes;
};
constexpr std::array<DTypeEntry, 7> kDTypes = {{{DType::kFloat32, "F32", 4},
                                                {DType::kBFloat16, "BF16", 2},
                                                {DType::kFloat16, "F16", 2},
                                                {DType::kInt64, "I64", 8},
                                                {DType::kInt32, "I32", 4},
                                                {DType::kUInt8, "U8", 1},
                                                {DType::kBool, "BOOL", 1}}};
}  // namespace

size_t DTypeBytes(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].bytes; }
std::string DTypeName(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

absl::StatusOr<DType> ParseDType(const std::string& name) {
  for (const DTypeEntry& entry : kDTypes) {
    if (name == entry.name) return entry.dtype;
  }
  return InvalidArgument("dtype {} is not supported (F32, BF16, F16, I64, I32, U8, BOOL are)",
                         name);
}

int64_t NumElements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Bf16 ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<Bf16>((bits >> 16) | 0x40u);
  return static_cast<Bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float FromBf16(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

float FromFloat16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

}  // namespace tandem
