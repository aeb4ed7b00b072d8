#include "common/types/tensor_view.h"

#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

using tandem::FromBf16;
using tandem::ToBf16;

TEST_CASE("ToBf16 rounds to nearest even", "[types][bf16]") {
  REQUIRE(FromBf16(ToBf16(1.0f)) == 1.0f);
  REQUIRE(FromBf16(ToBf16(1.00390625f)) == 1.0f);       // halfway, even below
  REQUIRE(FromBf16(ToBf16(1.01171875f)) == 1.015625f);  // halfway, even above
  REQUIRE(std::isinf(FromBf16(ToBf16(std::numeric_limits<float>::max()))));
  REQUIRE(std::isnan(FromBf16(ToBf16(std::nanf("")))));
}

TEST_CASE("FromFloat16 covers normal, subnormal and infinite values", "[types][f16]") {
  REQUIRE(tandem::FromFloat16(0x3c00) == 1.0f);
  REQUIRE(tandem::FromFloat16(0xc000) == -2.0f);
  REQUIRE(tandem::FromFloat16(0x0001) == 0x1p-24f);
  REQUIRE(std::isinf(tandem::FromFloat16(0x7c00)));
}

TEST_CASE("ParseDType names what it does not know", "[types][dtype]") {
  REQUIRE(tandem::ParseDType("BF16").value() == tandem::DType::kBFloat16);
  REQUIRE(std::string(tandem::ParseDType("F8").status().message()).find("F8") != std::string::npos);
}
