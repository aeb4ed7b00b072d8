#include <cmath>

#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "common/ops/cuda/linear/linear.h"
#include "tests/common/ops/cuda/device_ops.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::DeviceOps;
using testing::kBf16;
using testing::RowMajor;
using testing::TestMatrix;
using testing::TestWeight;

constexpr int64_t kHeadDim = 32, kHeadRows = 11;

struct Scored {
  std::vector<float> log_probs;
  std::vector<RowStats> stats;
};
Scored ScoreHead(ForwardOps& ops,
                 Matrix hidden,
                 const LinearWeight& head,
                 int64_t limit,
                 const int32_t* targets,
                 const float* temperatures) {
  Scored scored = {std::vector<float>(static_cast<size_t>(hidden.rows)),
                   std::vector<RowStats>(static_cast<size_t>(hidden.rows))};
  ops.TokenLogProbs(hidden, head, limit, targets, temperatures, scored.log_probs.data(),
                    scored.stats.data());
  return scored;
}

std::vector<SampleRow> SampledRows() {
  std::vector<SampleRow> rows;
  for (uint64_t i = 0; i < kHeadRows; ++i) {
    rows.push_back({.temperature = i % 5 == 0 ? 0.0f : 0.8f + 0.1f * static_cast<float>(i % 4),
                    .top_p = i % 4 == 1 ? 0.8f : 1.0f,
                    .top_k = i % 4 == 2 ? 40 : -1,
                    .uniform = RandomUniform(1, 2, i)});
  }
  return rows;
}
}  // namespace

TEST_CASE("Groups cover the vocabulary and end where the head does", "[cuda][ops]") {
  REQUIRE(HeadGroups(kGroupIds) == 1);
  REQUIRE(HeadGroups(kGroupIds + 1) == 2);
  const HeadGroup last = HeadGroupAt(1, kGroupIds + 3000, kGroupIds + 2049);
  REQUIRE(last.first_id == kGroupIds);
  REQUIRE(last.ids == 3000);
  REQUIRE(last.first_chunk == kGroupChunks);
  REQUIRE(last.chunks == 3);
  REQUIRE(AllIdsStride(kGroupIds + 3001, kGroupIds + 2049) == kGroupIds + 3008);
  // What a group computes does not hang on the limit.
  REQUIRE(HeadGroupAt(0, 3 * kGroupIds, 5).ids == kGroupIds);
}

TEST_CASE("Log-probs on a GPU agree with double sums over its logits", "[cuda][ops]") {
  DeviceOps device;
  constexpr int64_t kVocab = 2504, kLimit = 2300;
  const TestMatrix hidden = TestMatrix::Random(kBf16, kHeadRows, kHeadDim, 1, 2.0f);
  const TestWeight head(kBf16, kVocab, kHeadDim, 2, 1.0f);
  std::vector<float> logits(static_cast<size_t>(kHeadRows * kVocab));
  device.forward().Logits(hidden.view(), RowMajor(head), testing::View(logits, kHeadRows));
  REQUIRE(device.context().Synchronize().ok());
  std::vector<int32_t> targets;
  std::vector<float> temperatures;
  for (int32_t i = 0; i < kHeadRows; ++i) {
    targets.push_back(i * 220);
    temperatures.push_back(i % 3 == 0 ? 0.0f : 0.5f * static_cast<float>(i % 4 + 1));
  }
  const Scored scored = ScoreHead(device.forward(), hidden.view(), RowMajor(head), kLimit,
                                  targets.data(), temperatures.data());
  REQUIRE(device.context().Synchronize().ok());
  for (size_t row = 0; row < kHeadRows; ++row) {
    const double t = temperatures[row] == 0.0f ? 1.0 : static_cast<double>(temperatures[row]);
    double total = 0, weighted = 0, target = 0;
    for (int64_t id = 0; id < kLimit; ++id) {
      double logit = 0;
      for (int64_t k = 0; k < kHeadDim; ++k) {
        logit += static_cast<double>(hidden.At(static_cast<int64_t>(row), k)) *
                 static_cast<double>(head.source.At(id, k));
      }
      REQUIRE(static_cast<double>(logits[row * kVocab + static_cast<size_t>(id)]) ==
              Approx(logit).margin(1e-4));
      total += std::exp(logit / t);
      weighted += std::exp(logit / t) * logit / t;
      if (id == targets[row]) target = logit / t;
    }
    REQUIRE(static_cast<double>(scored.log_probs[row]) ==
            Approx(target - std::log(total)).margin(2e-4));
    REQUIRE(static_cast<double>(scored.stats[row].entropy) ==
            Approx(std::log(total) - weighted / total).margin(2e-4));
  }
}

TEST_CASE("A sampled token has the very log-prob that scoring gives it", "[cuda][ops]") {
  DeviceOps device;
  ForwardOps& ops = device.forward();
  // More ids than one product.
  constexpr int64_t kVocab = kGroupIds + 616, kLimit = kGroupIds + 531;
  const TestMatrix hidden = TestMatrix::Random(kBf16, kHeadRows, kHeadDim, 1, 2.0f);
  const TestWeight head(kBf16, kVocab, kHeadDim, 2, 1.0f);
  const std::vector<SampleRow> rows = SampledRows();
  std::vector<SampledToken> tokens(kHeadRows);
  ops.Sample(hidden.view(), RowMajor(head), kLimit, rows, tokens.data());
  REQUIRE(device.context().Synchronize().ok());
  std::vector<int32_t> targets;
  std::vector<float> temperatures;
  for (size_t i = 0; i < kHeadRows; ++i) {
    REQUIRE(tokens[i].token >= 0);
    REQUIRE(tokens[i].token < kLimit);
    targets.push_back(tokens[i].token);
    temperatures.push_back(rows[i].temperature);
  }
  const Scored scored =
      ScoreHead(ops, hidden.view(), RowMajor(head), kLimit, targets.data(), temperatures.data());
  for (size_t i = 0; i < kHeadRows; ++i) {
    REQUIRE(scored.log_probs[i] == tokens[i].log_prob);
    REQUIRE(scored.stats[i].entropy == tokens[i].entropy);
  }
}

TEST_CASE("A row's sample does not depend on the rows beside it", "[cuda][ops]") {
  DeviceOps device;
  ForwardOps& ops = device.forward();
  constexpr int64_t kVocab = 2504, kLimit = 2300;
  const TestMatrix hidden = TestMatrix::Random(kBf16, kHeadRows, kHeadDim, 1, 2.0f);
  const TestWeight head(kBf16, kVocab, kHeadDim, 2, 1.0f);
  const std::vector<SampleRow> rows = SampledRows();
  std::vector<SampledToken> full(kHeadRows);
  ops.Sample(hidden.view(), RowMajor(head), kLimit, rows, full.data());
  REQUIRE(device.context().Synchronize().ok());
  for (const uint64_t seed : testing::TwoSeeds()) {
    const testing::ScopedSeed scoped(seed);
    for (const int64_t m : {1, 2, 5}) {
      const int64_t first = m * 2 % 7;
      const std::vector<SampleRow> some(rows.begin() + first, rows.begin() + first + m);
      std::vector<SampledToken> part(some.size());
      ops.Sample(hidden.Rows(first, m), RowMajor(head), kLimit, some, part.data());
      REQUIRE(device.context().Synchronize().ok());
      for (size_t i = 0; i < part.size(); ++i) {
        const SampledToken& expected = full[static_cast<size_t>(first) + i];
        REQUIRE(part[i].token == expected.token);
        REQUIRE(part[i].log_prob == expected.log_prob);
        REQUIRE(part[i].entropy == expected.entropy);
      }
    }
  }
}

}  // namespace tandem
