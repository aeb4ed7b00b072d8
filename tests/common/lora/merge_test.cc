#include "common/lora/merge.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>
#include <xmmintrin.h>

#include "common/base/philox.h"
#include "common/lora/merge_kernels.h"

namespace tandem {
namespace {

// Of all sizes, some of them denormal.
std::vector<float> MergeValues(int64_t count, uint64_t seed, int spread = 12) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const float uniform = RandomUniform(seed, 0, static_cast<uint64_t>(i)) - 0.5f;
    values.push_back(std::ldexp(uniform, -static_cast<int>(i * 7 % spread)));
  }
  return values;
}

struct MergeCase {
  int64_t rows = 0, in = 0, rank = 0;
  double scaling = 2;
  std::vector<float> base, b, a;
  std::vector<Bf16> base16;

  MergeCase(int64_t rows_, int64_t in_, int64_t rank_, uint64_t seed = 1, int spread = 12)
      : rows(rows_),
        in(in_),
        rank(rank_),
        base(MergeValues(rows * in, seed, spread)),
        b(MergeValues(rows * rank, seed + 1, spread)),
        a(MergeValues(rank * in, seed + 2, spread)) {
    for (float value : base) base16.push_back(ToBf16(value));
  }

  // The formula, element by element.
  float Sum(int64_t i, int64_t j, bool base_is_16, bool round_product) const {
    float product = 0;
    for (int64_t k = 0; k < rank; ++k) product = std::fma(b[i * rank + k], a[k * in + j], product);
    float delta = product * static_cast<float>(scaling);
    if (round_product) delta = FromBf16(ToBf16(delta));
    const float w = base_is_16 ? FromBf16(base16[i * in + j]) : base[i * in + j];
    return delta == 0 ? w : w + delta;
  }

  MergeBlock Block(bool base_is_16, int64_t first, int64_t count) const {
    MergeBlock block;
    block.base = base_is_16 ? static_cast<const void*>(base16.data() + first * in)
                            : static_cast<const void*>(base.data() + first * in);
    block.base_dtype = base_is_16 ? DType::kBFloat16 : DType::kFloat32;
    block.b = b.data() + first * rank;
    block.a = a.data();
    block.scaling = scaling;
    block.rows = count;
    block.in = in;
    block.rank = rank;
    return block;
  }
};

std::vector<float> MergeTo32(const MergeCase& c, bool base_is_16, MergeRule rule) {
  std::vector<float> out(c.base.size(), NAN);
  MergeBlock block = c.Block(base_is_16, 0, c.rows);
  block.out = out.data();
  block.out_dtype = DType::kFloat32;
  block.rule = rule;
  MergeRows(block);
  return out;
}

std::vector<Bf16> MergeTo16(const MergeCase& c, bool base_is_16, MergeRule rule) {
  std::vector<Bf16> out(c.base.size(), 0x7fc0);
  MergeBlock block = c.Block(base_is_16, 0, c.rows);
  block.out = out.data();
  block.rule = rule;
  MergeRows(block);
  return out;
}

bool SameBits(float x, float y) { return std::memcmp(&x, &y, sizeof(x)) == 0; }

TEST_CASE("merged rows have the bits of the formula, for every dtype, rule and width") {
  for (const MergeCase& c :
       {MergeCase(1, 1, 1), MergeCase(3, 63, 2), MergeCase(5, 64, 8), MergeCase(2, 65, 3),
        MergeCase(4, 200, 33), MergeCase(2, 129, 64), MergeCase(2, 70, 5000, 9),
        MergeCase(70, 330, 40), MergeCase(33, 1100, 8)}) {
    for (bool base_is_16 : {false, true}) {
      for (MergeRule rule : {MergeRule::kServed, MergeRule::kBf16Product}) {
        const std::vector<float> to32 = MergeTo32(c, base_is_16, rule);
        const std::vector<Bf16> to16 = MergeTo16(c, base_is_16, rule);
        for (int64_t i = 0; i < c.rows; ++i) {
          for (int64_t j = 0; j < c.in; ++j) {
            const float want = c.Sum(i, j, base_is_16, rule == MergeRule::kBf16Product);
            const auto at = static_cast<size_t>(i * c.in + j);
            REQUIRE(SameBits(to32[at], want));
            REQUIRE(to16[at] == ToBf16(want));
          }
        }
      }
    }
  }
}

TEST_CASE("every instruction set gives the same bits, denormals and what is no number included") {
  MergeCase c(7, 203, 19, 5, 150);
  c.base[0] = c.a[3] = std::numeric_limits<float>::quiet_NaN();
  c.base[300] = std::numeric_limits<float>::infinity();
  c.base[301] = c.b[20] = std::numeric_limits<float>::max();
  std::vector<uint32_t> first;
  REQUIRE(RunnableMergeKernels().size() >= 1);
  for (const MergeKernel* kernel : RunnableMergeKernels()) {
    INFO(kernel->name);
    std::vector<uint32_t> bits(c.base.size());
    MergeBlock block = c.Block(false, 0, c.rows);
    block.out = bits.data();
    block.out_dtype = DType::kFloat32;
    kernel->merge(block);
    for (uint32_t& b : bits) {
      if ((b & 0x7fffffffu) > 0x7f800000u) b = 0x7fc00000u;  // which NaN is left open
    }
    if (first.empty()) first = bits;
    REQUIRE(bits == first);
  }
}

TEST_CASE("the number of rows at once changes no bit, nor does merging in place") {
  const MergeCase c(9, 131, 5);
  const std::vector<Bf16> whole = MergeTo16(c, true, MergeRule::kServed);
  for (int64_t step : {1, 2, 4, 5}) {
    std::vector<Bf16> out = c.base16;
    for (int64_t first = 0; first < c.rows; first += step) {
      MergeBlock block = c.Block(true, first, std::min(step, c.rows - first));
      block.base = block.out = out.data() + first * c.in;
      MergeRows(block);
    }
    REQUIRE(out == whole);
  }
}

TEST_CASE("base and output need no alignment") {
  const MergeCase c(3, 77, 4);
  const std::vector<float> want = MergeTo32(c, true, MergeRule::kServed);
  std::vector<char> base(c.base16.size() * 2 + 1), out(c.base.size() * 4 + 1);
  std::memcpy(base.data() + 1, c.base16.data(), c.base16.size() * 2);
  MergeBlock block = c.Block(true, 0, c.rows);
  block.base = base.data() + 1;
  block.out = out.data() + 1;
  block.out_dtype = DType::kFloat32;
  MergeRows(block);
  REQUIRE(std::memcmp(out.data() + 1, want.data(), want.size() * 4) == 0);
}

TEST_CASE("an adapter whose B is zero leaves every bit of the base, negative zeros too") {
  MergeCase c(4, 70, 3);
  for (Bf16& value : c.base16) value = static_cast<Bf16>(value & 0xff80);
  c.base16[5] = 0x8000;
  c.base16[6] = 0x0001;  // a denormal
  std::fill(c.b.begin(), c.b.end(), 0.0f);
  c.b[1] = -0.0f;
  REQUIRE(MergeTo16(c, true, MergeRule::kServed) == c.base16);
  REQUIRE(MergeTo16(c, true, MergeRule::kBf16Product) == c.base16);
}

TEST_CASE("denormals are kept in a thread that flushes them") {
  const MergeCase c(3, 80, 4, 3, 150);
  const std::vector<float> want = MergeTo32(c, false, MergeRule::kServed);
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040u);
  const std::vector<float> got = MergeTo32(c, false, MergeRule::kServed);
  const bool still_flushing = _mm_getcsr() == (saved | 0x8040u);
  _mm_setcsr(saved);
  REQUIRE(still_flushing);
  REQUIRE(std::memcmp(got.data(), want.data(), want.size() * 4) == 0);
}

// 1 + 2^-8 lies between two bf16 values: the sum rounds to the even one, and what is added before
// the rounding decides, where two roundings lose it.
TEST_CASE("the sum is rounded once, to nearest even") {
  const float w[] = {1.0f, 1.0f, 1.0078125f};
  const float b[] = {1.0f};
  const float a[] = {0x1p-8f, 0x1p-8f + 0x1p-17f, 0x1p-8f};
  MergeBlock block{.base = w,
                   .base_dtype = DType::kFloat32,
                   .b = b,
                   .a = a,
                   .scaling = 1,
                   .rows = 1,
                   .in = 3,
                   .rank = 1};
  Bf16 out[3];
  block.out = out;
  MergeRows(block);
  REQUIRE(FromBf16(out[0]) == 1.0f);
  REQUIRE(FromBf16(out[1]) == 1.0078125f);
  REQUIRE(FromBf16(out[2]) == 1.015625f);
  block.rule = MergeRule::kBf16Product;
  MergeRows(block);
  REQUIRE(FromBf16(out[1]) == 1.0f);
}

}  // namespace
}  // namespace tandem
