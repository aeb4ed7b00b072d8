#include "common/base/philox.h"

#include <cmath>

#include <catch2/catch.hpp>

TEST_CASE("Philox4x32 matches the published known-answer vectors", "[base][philox]") {
  // kat_vectors of the Random123 distribution, philox4x32 10 rounds.
  using Words = std::array<uint32_t, 4>;
  REQUIRE(tandem::Philox4x32({0, 0, 0, 0}, {0, 0}) ==
          Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  REQUIRE(tandem::Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                             {0xffffffff, 0xffffffff}) ==
          Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

TEST_CASE("RandomUniform stays strictly inside 0 and 1", "[base][philox]") {
  float low = 1.0f, high = 0.0f;
  double sum = 0;
  for (uint64_t i = 0; i < 200000; ++i) {
    const float u = tandem::RandomUniform(7, 11, i);
    low = std::min(low, u);
    high = std::max(high, u);
    sum += u;
  }
  REQUIRE(low > 0.0f);
  REQUIRE(high < 1.0f);
  REQUIRE(sum / 200000 == Approx(0.5).margin(0.005));
}

TEST_CASE("RandomUniform52 refines RandomUniform and stays strictly inside 0 and 1",
          "[base][philox]") {
  for (uint64_t i = 0; i < 100000; ++i) {
    const double fine = tandem::RandomUniform52(7, 11, i);
    REQUIRE(fine > 0);
    REQUIRE(fine < 1);
    const double coarse = static_cast<double>(tandem::RandomUniform(7, 11, i));
    REQUIRE(std::abs(fine - coarse) < 0x1p-24);
  }
  // 52 bits: an odd multiple of 2^-53.
  const double scaled = tandem::RandomUniform52(7, 11, 5) * 0x1p53;
  REQUIRE(scaled == std::floor(scaled));
  REQUIRE(std::fmod(scaled, 2) == 1);
}

TEST_CASE("RandomUniform depends on seed, stream and index", "[base][philox]") {
  const float base = tandem::RandomUniform(1, 2, 3);
  REQUIRE(base == tandem::RandomUniform(1, 2, 3));
  REQUIRE(base != tandem::RandomUniform(2, 2, 3));
  REQUIRE(base != tandem::RandomUniform(1, 3, 3));
  REQUIRE(base != tandem::RandomUniform(1, 2, 4));
}
