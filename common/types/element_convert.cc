#include "common/types/element_convert.h"

#include <cstring>

#include "common/base/status_macros.h"

namespace tandem {
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
