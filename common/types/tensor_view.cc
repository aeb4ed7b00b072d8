#include "common/types/tensor_view.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "common/base/status.h"

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

namespace {

template <typename From, typename To, typename Function>
void Map(const void* from, void* to, size_t count, Function convert) {
  const char* bytes = static_cast<const char*>(from);
  To* target = static_cast<To*>(to);
  for (size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, bytes + i * sizeof(From), sizeof(From));
    target[i] = convert(value);
  }
}

}  // namespace

bool IsFloat(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

absl::Status ConvertElements(
    const void* from, DType from_type, void* to, DType to_type, size_t count) {
  const bool to_float32 = to_type == DType::kFloat32;
  if (!IsFloat(from_type) || (!to_float32 && to_type != DType::kBFloat16)) {
    return InvalidArgument(
        "cannot convert {} to {}: weights are F32, BF16 or F16 and are read as "
        "F32 or BF16",
        DTypeName(from_type), DTypeName(to_type));
  }
  if (from_type == to_type) {
    std::memcpy(to, from, count * DTypeBytes(to_type));
  } else if (from_type == DType::kFloat32) {
    Map<float, Bf16>(from, to, count, [](float value) { return ToBf16(value); });
  } else if (from_type == DType::kBFloat16) {
    Map<Bf16, float>(from, to, count, [](Bf16 value) { return FromBf16(value); });
  } else if (to_float32) {
    Map<uint16_t, float>(from, to, count, [](uint16_t bits) { return FromFloat16(bits); });
  } else {
    Map<uint16_t, Bf16>(from, to, count, [](uint16_t bits) { return ToBf16(FromFloat16(bits)); });
  }
  return absl::OkStatus();
}

}  // namespace tandem
