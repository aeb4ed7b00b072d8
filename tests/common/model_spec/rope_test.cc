#include "common/model_spec/rope.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

ModelSpec RopeSpec(double theta, int64_t head_dim) {
  ModelSpec spec;
  spec.rope_theta = theta;
  spec.head_dim = head_dim;
  return spec;
}

}  // namespace

TEST_CASE("Default rope frequencies fall from one by powers of theta", "[model_spec][rope]") {
  const std::vector<float> frequencies = RopeInverseFrequencies(RopeSpec(10000.0, 8));
  REQUIRE(frequencies.size() == 4);
  REQUIRE(frequencies[0] == 1.0f);
  REQUIRE(frequencies[1] == 1.0f / 10.0f);
  REQUIRE(frequencies[2] == 1.0f / 100.0f);
  REQUIRE(frequencies[3] == 1.0f / 1000.0f);
}

// Expected bits: torch 2.11 evaluating transformers' formulas in float32 on a CPU.
TEST_CASE("llama3 rope frequencies match torch bit for bit", "[model_spec][rope]") {
  ModelSpec spec = RopeSpec(500000.0, 64);
  spec.rope = {RopeScaling::Type::kLlama3, 32.0, 1.0, 4.0, 8192};
  const std::vector<float> expected = {
      0x1p+0f,         0x1.53c38cp-1f,  0x1.c2ef78p-2f,  0x1.2b3dc6p-2f,  0x1.8d276p-3f,
      0x1.078d4p-3f,   0x1.5dc95ap-4f,  0x1.d03ccep-5f,  0x1.34119p-5f,   0x1.98de92p-6f,
      0x1.0f5386p-6f,  0x1.681adap-7f,  0x1.ddee9ep-8f,  0x1.3d2804p-8f,  0x1.a4ee4p-9f,
      0x1.524f36p-10f, 0x1.c26c4p-12f,  0x1.9731eep-14f, 0x1.46831ap-16f, 0x1.b15902p-17f,
      0x1.1f91fp-17f,  0x1.7da9e8p-18f, 0x1.fa8b86p-19f, 0x1.5024d6p-19f, 0x1.be2188p-20f,
      0x1.280d96p-20f, 0x1.88ec2p-21f,  0x1.04be68p-21f, 0x1.5a0f4ep-22f, 0x1.cb4a9ap-23f,
      0x1.30c94ep-23f, 0x1.94836p-24f};
  REQUIRE(RopeInverseFrequencies(spec) == expected);
  spec = RopeSpec(10000.0, 16);
  spec.rope = {RopeScaling::Type::kLlama3, 4.0, 1.0, 4.0, 64};
  REQUIRE(RopeInverseFrequencies(spec) ==
          std::vector<float>{0x1p+0f, 0x1.04c26cp-2f, 0x1.a13712p-6f, 0x1.030dc6p-7f,
                             0x1.47ae14p-9f, 0x1.9e7c7p-11f, 0x1.0624dep-12f, 0x1.4b96cp-14f});
}

}  // namespace tandem
