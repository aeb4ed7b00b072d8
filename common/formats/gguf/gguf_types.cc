#include "common/formats/gguf/gguf_types.h"

#include <array>
#include <cstring>

#include <fmt/format.h>

#include "common/formats/gguf/gguf.h"
#include "common/types/tensor_view.h"

namespace tandem {
namespace {

constexpr size_t kBlock = 32;

float LoadFloat16(const uint8_t* bytes) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof(bits));
  return FromFloat16(bits);
}

void FromF32(const uint8_t* block, float* value) { std::memcpy(value, block, sizeof(float)); }

void FromF16(const uint8_t* block, float* value) { *value = LoadFloat16(block); }

void FromStoredBf16(const uint8_t* block, float* value) {
  Bf16 bits = 0;
  std::memcpy(&bits, block, sizeof(bits));
  *value = FromBf16(bits);
}

// f16 d, 16 bytes: low nibbles are values 0-15, high nibbles 16-31; value = d * (q - 8).
void FromQ40(const uint8_t* block, float* values) {
  const float d = LoadFloat16(block);
  for (size_t i = 0; i < kBlock / 2; ++i) {
    const int byte = block[2 + i];
    values[i] = static_cast<float>((byte & 15) - 8) * d;
    values[i + kBlock / 2] = static_cast<float>((byte >> 4) - 8) * d;
  }
}

// f16 d, f16 m, 16 bytes as above; value = d * q + m.
void FromQ41(const uint8_t* block, float* values) {
  const float d = LoadFloat16(block);
  const float m = LoadFloat16(block + 2);
  for (size_t i = 0; i < kBlock / 2; ++i) {
    const int byte = block[4 + i];
    values[i] = static_cast<float>(byte & 15) * d + m;
    values[i + kBlock / 2] = static_cast<float>(byte >> 4) * d + m;
  }
}

// f16 d, 32 signed bytes; value = d * q.
void FromQ80(const uint8_t* block, float* values) {
  const float d = LoadFloat16(block);
  for (size_t i = 0; i < kBlock; ++i) {
    values[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
  }
}

constexpr std::array<GgufBlockType, 6> kTypes = {{{0, "F32", 1, 4, FromF32},
                                                  {1, "F16", 1, 2, FromF16},
                                                  {2, "Q4_0", kBlock, 18, FromQ40},
                                                  {3, "Q4_1", kBlock, 20, FromQ41},
                                                  {8, "Q8_0", kBlock, 34, FromQ80},
                                                  {30, "BF16", 1, 2, FromStoredBf16}}};

// The other types, for messages only.
struct OtherType {
  uint32_t type;
  const char* name;
};
constexpr std::array<OtherType, 24> kOtherTypes = {
    {{6, "Q5_0"},   {7, "Q5_1"},    {9, "Q8_1"},   {10, "Q2_K"},    {11, "Q3_K"},   {12, "Q4_K"},
     {13, "Q5_K"},  {14, "Q6_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
     {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {24, "I8"},
     {25, "I16"},   {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},  {34, "TQ1_0"}}};

}  // namespace

const GgufBlockType* FindGgufBlockType(uint32_t type) {
  for (const GgufBlockType& entry : kTypes) {
    if (entry.type == type) return &entry;
  }
  return nullptr;
}

std::string GgufTypeName(uint32_t type) {
  if (const GgufBlockType* known = FindGgufBlockType(type); known != nullptr) return known->name;
  for (const OtherType& other : kOtherTypes) {
    if (other.type == type) return other.name;
  }
  return fmt::format("number {}", type);
}

}  // namespace tandem
