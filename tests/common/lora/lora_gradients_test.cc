#include "common/lora/lora_gradients.h"

#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/philox.h"

namespace tandem {
namespace {

std::vector<float> GradientValues(int64_t count, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(RandomUniform(seed, 0, static_cast<uint64_t>(i)) - 0.5f);
  }
  return values;
}

struct Gradients {
  std::vector<float> db, da;
  friend bool operator==(const Gradients&, const Gradients&) = default;
};

struct GradientCase {
  int64_t rows, in, rank;
  double scaling = 0.75;
  std::vector<float> dw, b, a;

  GradientCase(int64_t rows_, int64_t in_, int64_t rank_)
      : rows(rows_),
        in(in_),
        rank(rank_),
        dw(GradientValues(rows * in, 1)),
        b(GradientValues(rows * rank, 2)),
        a(GradientValues(rank * in, 3)) {}

  // By blocks of `step` rows, added to what is there.
  Gradients Add(int64_t step, float before = 0) const {
    Gradients g{std::vector<float>(b.size(), before), std::vector<float>(a.size(), before)};
    for (int64_t first = 0; first < rows; first += step) {
      AddLoraGradients({.dw = dw.data() + first * in,
                        .b = b.data() + first * rank,
                        .a = a.data(),
                        .scaling = scaling,
                        .rows = std::min(step, rows - first),
                        .in = in,
                        .rank = rank,
                        .db = g.db.data() + first * rank,
                        .da = g.da.data()});
    }
    return g;
  }
};

const std::vector<GradientCase>& Cases() {
  static const std::vector<GradientCase> cases = {
      {1, 1, 1}, {3, 15, 2}, {5, 16, 4}, {40, 33, 3}, {7, 2100, 5}};
  return cases;
}

TEST_CASE("gradients of A and B are those of the product, scaled") {
  for (const GradientCase& c : Cases()) {
    const Gradients g = c.Add(c.rows);
    for (int64_t i = 0; i < c.rows; ++i) {
      for (int64_t k = 0; k < c.rank; ++k) {
        double want = 0;
        for (int64_t j = 0; j < c.in; ++j) want += double{c.dw[i * c.in + j]} * c.a[k * c.in + j];
        REQUIRE(g.db[i * c.rank + k] == Approx(c.scaling * want).margin(1e-5));
      }
    }
    for (int64_t k = 0; k < c.rank; ++k) {
      for (int64_t j = 0; j < c.in; ++j) {
        double want = 0;
        for (int64_t i = 0; i < c.rows; ++i) {
          want += double{c.b[i * c.rank + k]} * c.dw[i * c.in + j];
        }
        REQUIRE(g.da[k * c.in + j] == Approx(c.scaling * want).margin(1e-5));
      }
    }
  }
}

TEST_CASE("blocks of rows give the bits of all rows at once") {
  for (const GradientCase& c : Cases()) {
    for (int64_t step : {1, 2, 3, 8}) REQUIRE(c.Add(step) == c.Add(c.rows));
  }
}

TEST_CASE("gradients are added to what is there") {
  const GradientCase c(5, 16, 4);
  const Gradients fresh = c.Add(c.rows), added = c.Add(c.rows, 1.0f);
  for (size_t i = 0; i < fresh.db.size(); ++i) {
    REQUIRE(added.db[i] == Approx(fresh.db[i] + 1.0f).margin(1e-6));
  }
  for (size_t i = 0; i < fresh.da.size(); ++i) {
    REQUIRE(added.da[i] == Approx(fresh.da[i] + 1.0f).margin(1e-6));
  }
}

}  // namespace
}  // namespace tandem
