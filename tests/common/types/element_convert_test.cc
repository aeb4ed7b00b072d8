#include <cstring>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "common/types/tensor_view.h"

namespace tandem {

TEST_CASE("Floats convert between all weight types", "[tensor_file][convert]") {
  const std::vector<float> values = {1.0f, -2.5f, 0.0f, 1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f};
  std::vector<Bf16> narrow(values.size());
  REQUIRE(ConvertElements(values.data(), DType::kFloat32, narrow.data(), DType::kBFloat16, 5).ok());
  // Ties go to even: 1 + 2^-8 down, 1 + 3 * 2^-8 up.
  REQUIRE(narrow == std::vector<Bf16>{0x3f80, 0xc020, 0x0000, 0x3f80, 0x3f82});
  std::vector<float> wide(values.size());
  REQUIRE(ConvertElements(narrow.data(), DType::kBFloat16, wide.data(), DType::kFloat32, 5).ok());
  REQUIRE(wide == std::vector<float>{1.0f, -2.5f, 0.0f, 1.0f, 1.0f + 4 * 0x1p-8f});
  const std::vector<uint16_t> half = {0x3c00, 0xc100, 0x0001};
  REQUIRE(ConvertElements(half.data(), DType::kFloat16, wide.data(), DType::kFloat32, 3).ok());
  REQUIRE(wide[0] == 1.0f);
  REQUIRE(wide[1] == -2.5f);
  REQUIRE(wide[2] == 0x1p-24f);
  REQUIRE(ConvertElements(half.data(), DType::kFloat16, narrow.data(), DType::kBFloat16, 3).ok());
  REQUIRE(narrow[1] == 0xc020);
}

TEST_CASE("Unaligned sources convert", "[tensor_file][convert]") {
  std::vector<char> bytes(1 + 2 * sizeof(float));
  const float values[] = {3.0f, 4.0f};
  std::memcpy(bytes.data() + 1, values, sizeof(values));
  Bf16 narrow[2];
  REQUIRE(ConvertElements(bytes.data() + 1, DType::kFloat32, narrow, DType::kBFloat16, 2).ok());
  REQUIRE(FromBf16(narrow[1]) == 4.0f);
}

TEST_CASE("Integers are not weights", "[tensor_file][convert]") {
  int64_t from = 1;
  float to = 0;
  REQUIRE(!ConvertElements(&from, DType::kInt64, &to, DType::kFloat32, 1).ok());
  REQUIRE(!ConvertElements(&to, DType::kFloat32, &from, DType::kFloat16, 1).ok());
}

}  // namespace tandem
