#include <algorithm>
#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "common/ops/cpu/kernels/isa.h"
#include "common/ops/cpu/sample_row.h"
#include "common/ops/numerics_layout.h"
#include "tests/common/ops/ops_fixture.h"
#include "trainer_worker/forward_backward/layer_loop.h"

namespace tandem {
namespace {
using testing::TestMatrix;
using testing::TestWeight;

constexpr int64_t kLogitsVocab = 2500, kLogitsLimit = 2300, kLogitsDim = 40;

// Probabilities over ids < limit in double, from the op's own fp32 logits.
std::vector<double> Probabilities(const std::vector<float>& logits, int64_t row, double t) {
  std::vector<double> p;
  double total = 0;
  for (int64_t id = 0; id < kLogitsLimit; ++id) {
    p.push_back(
        std::exp(static_cast<double>(logits[static_cast<size_t>(row * kLogitsVocab + id)]) / t));
    total += p.back();
  }
  for (double& value : p) value /= total;
  return p;
}

struct Scored {
  std::vector<float> log_probs, entropy;
  std::vector<RowStats> stats;
};
Scored Score(ForwardOps& ops,
             Matrix hidden,
             const TestWeight& head,
             const int32_t* targets,
             const float* temperatures) {
  const auto rows = static_cast<size_t>(hidden.rows);
  Scored scored = {std::vector<float>(rows), std::vector<float>(rows), std::vector<RowStats>(rows)};
  ops.TokenLogProbs(hidden, head.view(), kLogitsLimit, targets, temperatures,
                    scored.log_probs.data(), scored.stats.data());
  for (size_t i = 0; i < rows; ++i) scored.entropy[i] = scored.stats[i].entropy;
  return scored;
}

std::vector<float> AllLogits(ForwardOps& ops, const TestMatrix& hidden, const TestWeight& head) {
  std::vector<float> logits(static_cast<size_t>(hidden.rows() * kLogitsVocab));
  ops.Logits(hidden.view(), head.view(),
             {logits.data(), hidden.rows(), kLogitsVocab, kLogitsVocab});
  return logits;
}
}  // namespace

TEST_CASE("Token log-probs and entropies agree with a double reference", "[ops][logits]") {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    const auto ops = testing::MakeForward(dtype, 2);
    const TestMatrix hidden = TestMatrix::Random(dtype, 20, kLogitsDim, 1, 2.0f);
    const TestWeight head(dtype, kLogitsVocab, kLogitsDim, 2, 1.0f);
    const std::vector<float> logits = AllLogits(*ops, hidden, head);
    std::vector<int32_t> targets;
    std::vector<float> temperatures;
    for (int32_t i = 0; i < 20; ++i) {
      targets.push_back(i * 121);
      temperatures.push_back(i % 3 == 0 ? 0.0f : 0.5f * static_cast<float>(i % 4 + 1));
    }
    const Scored scored = Score(*ops, hidden.view(), head, targets.data(), temperatures.data());
    for (size_t i = 0; i < 20; ++i) {
      const double t = temperatures[i] == 0.0f ? 1.0 : static_cast<double>(temperatures[i]);
      const std::vector<double> p = Probabilities(logits, static_cast<int64_t>(i), t);
      double entropy = 0;
      for (const double value : p) entropy -= value > 0 ? value * std::log(value) : 0;
      const double expected = std::log(p[static_cast<size_t>(targets[i])]);
      REQUIRE(scored.log_probs[i] == Approx(expected).epsilon(2e-6).margin(1e-5));
      REQUIRE(scored.entropy[i] == Approx(entropy).epsilon(1e-5).margin(1e-5));
    }
  }
}

TEST_CASE("Sums of squared probabilities come from the statistics at half the temperature",
          "[ops][logits]") {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    const auto ops = testing::MakeForward(dtype, 2);
    const TestMatrix hidden = TestMatrix::Random(dtype, 8, kLogitsDim, 1, 2.0f);
    const TestWeight head(dtype, kLogitsVocab, kLogitsDim, 2, 1.0f);
    const std::vector<float> logits = AllLogits(*ops, hidden, head);
    const std::vector<int32_t> targets(8, 0);
    const std::vector<float> temperatures = {0, 1, 0.25f, 0.7f, 1.3f, 5, 0.05f, 40};
    const auto stats = [&](const std::vector<float>& at) {
      std::vector<RowStats> rows(8);
      std::vector<float> log_probs(8);
      ops->TokenLogProbs(hidden.view(), head.view(), kLogitsLimit, targets.data(), at.data(),
                         log_probs.data(), rows.data());
      return rows;
    };
    const std::vector<RowStats> whole = stats(temperatures),
                                half = stats(HalfTemperatures(temperatures));
    for (size_t i = 0; i < 8; ++i) {
      const double t = temperatures[i] == 0.0f ? 1.0 : static_cast<double>(temperatures[i]);
      double expected = 0;
      for (const double p : Probabilities(logits, static_cast<int64_t>(i), t)) expected += p * p;
      INFO("T = " << t);
      REQUIRE(half[i].max == 2 * whole[i].max);  // which SumPiSquared relies on
      REQUIRE(SumPiSquared(whole[i], half[i]) == Approx(expected).epsilon(1e-5));
    }
  }
}

TEST_CASE("A row's log-prob and sample do not depend on the batch or threads", "[ops][logits]") {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    constexpr int64_t kRows = 140;
    const TestMatrix hidden = TestMatrix::Random(dtype, kRows, kLogitsDim, 1, 2.0f);
    const TestWeight head(dtype, kLogitsVocab, kLogitsDim, 2, 1.0f);
    std::vector<SampleRow> rows;
    std::vector<float> temperatures;
    for (uint64_t i = 0; i < kRows; ++i) {
      rows.push_back({i % 7 == 0 ? 0.0f : 0.8f + 0.1f * static_cast<float>(i % 5),
                      i % 11 == 0 ? 0.8f : 1.0f, i % 13 == 0 ? 40 : -1, RandomUniform(1, 2, i)});
      temperatures.push_back(rows.back().temperature);
    }
    std::vector<SampledToken> full(kRows);
    std::vector<int32_t> targets;
    const auto one = testing::MakeForward(dtype, 1);
    one->Sample(hidden.view(), head.view(), kLogitsLimit, rows, full.data());
    for (const SampledToken& token : full) targets.push_back(token.token);
    const Scored scored = Score(*one, hidden.view(), head, targets.data(), temperatures.data());
    for (size_t i = 0; i < kRows; ++i) REQUIRE(scored.log_probs[i] == full[i].log_prob);
    const auto two = testing::MakeForward(dtype, 2);
    for (const int64_t m : {1, 2, 5, 8, 63, 64, 65, 129}) {
      const int64_t first = m % 11;
      const auto from = static_cast<size_t>(first);
      const std::vector<SampleRow> some(rows.begin() + first, rows.begin() + first + m);
      std::vector<SampledToken> part(static_cast<size_t>(m));
      two->Sample(hidden.Rows(first, m), head.view(), kLogitsLimit, some, part.data());
      const Scored again = Score(*two, hidden.Rows(first, m), head, targets.data() + first,
                                 temperatures.data() + first);
      for (size_t i = 0; i < part.size(); ++i) {
        REQUIRE(part[i].token == full[from + i].token);
        REQUIRE(part[i].log_prob == full[from + i].log_prob);
        REQUIRE(part[i].entropy == scored.entropy[from + i]);
        REQUIRE(again.log_probs[i] == full[from + i].log_prob);
        REQUIRE(again.entropy[i] == scored.entropy[from + i]);
      }
    }
  }
}

namespace {

// A head that masks ids by a bias of -inf: single ones, and a whole chunk.
struct MaskedHead {
  explicit MaskedHead(DType dtype) : head(dtype, kLogitsVocab, kLogitsDim, 2, 1.0f, true) {
    for (int64_t id = 0; id < kLogitsLimit; ++id) {
      if (masked(id)) head.bias.Set(0, id, -std::numeric_limits<float>::infinity());
    }
  }
  static bool masked(int64_t id) { return id % 3 == 1 || id / kVocabChunk == 1; }

  TestWeight head;
};

// Every second row is scored on a masked token.
std::vector<int32_t> TargetsOnMaskedHead(int64_t rows) {
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < rows; ++i) targets.push_back(static_cast<int32_t>(3 * i + i % 2));
  return targets;
}

}  // namespace

TEST_CASE("Masked logits of -inf have no probability, no entropy, and are never sampled",
          "[ops][logits]") {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    const auto ops = testing::MakeForward(dtype, 2);
    constexpr int64_t kRows = 24;
    const TestMatrix hidden = TestMatrix::Random(dtype, kRows, kLogitsDim, 1, 2.0f);
    const MaskedHead masked(dtype);
    const std::vector<float> logits = AllLogits(*ops, hidden, masked.head);
    const std::vector<int32_t> targets = TargetsOnMaskedHead(kRows);
    const std::vector<float> temperatures(kRows, 0.7f);
    const Scored scored =
        Score(*ops, hidden.view(), masked.head, targets.data(), temperatures.data());
    const Scored halved = Score(*ops, hidden.view(), masked.head, targets.data(),
                                HalfTemperatures(temperatures).data());
    for (size_t i = 0; i < kRows; ++i) {
      const std::vector<double> p = Probabilities(logits, static_cast<int64_t>(i), 0.7f);
      double entropy = 0, squares = 0;
      for (const double value : p) entropy -= value > 0 ? value * std::log(value) : 0;
      for (const double value : p) squares += value * value;
      REQUIRE(SumPiSquared(scored.stats[i], halved.stats[i]) == Approx(squares).epsilon(1e-5));
      REQUIRE(scored.entropy[i] == Approx(entropy).epsilon(1e-5).margin(1e-5));
      if (MaskedHead::masked(targets[i])) {
        REQUIRE(scored.log_probs[i] == -std::numeric_limits<float>::infinity());
      } else {
        const double expected = std::log(p[static_cast<size_t>(targets[i])]);
        REQUIRE(scored.log_probs[i] == Approx(expected).epsilon(2e-6).margin(1e-5));
      }
    }
    // What a rollout samples, plainly, greedily, and with hard filters, has the trainer's bits.
    std::vector<SampleRow> rows;
    for (uint64_t i = 0; i < kRows; ++i) {
      const float u = i == 0 ? 1.0f - 0x1p-24f : RandomUniform(1, 2, i);
      rows.push_back({i % 5 == 1 ? 0.0f : 0.7f, i % 4 == 2 ? 0.9f : 1.0f, i % 6 == 3 ? 40 : -1, u});
    }
    std::vector<SampledToken> sampled(kRows);
    ops->Sample(hidden.view(), masked.head.view(), kLogitsLimit, rows, sampled.data());
    std::vector<int32_t> tokens;
    std::vector<float> sampled_at;
    for (size_t i = 0; i < kRows; ++i) {
      REQUIRE_FALSE(MaskedHead::masked(sampled[i].token));
      tokens.push_back(sampled[i].token);
      sampled_at.push_back(rows[i].temperature);
    }
    const Scored again = Score(*ops, hidden.view(), masked.head, tokens.data(), sampled_at.data());
    for (size_t i = 0; i < kRows; ++i) {
      REQUIRE(std::isfinite(sampled[i].log_prob));
      REQUIRE(again.log_probs[i] == sampled[i].log_prob);
      REQUIRE(again.entropy[i] == sampled[i].entropy);
    }
  }
}

TEST_CASE("Masked logits of -inf have no gradient", "[ops][logits]") {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    const auto forward = testing::MakeForward(dtype, 2);
    const auto backward = testing::MakeBackward(dtype, 2);
    constexpr int64_t kRows = 24;
    const TestMatrix hidden = TestMatrix::Random(dtype, kRows, kLogitsDim, 1, 2.0f);
    const MaskedHead masked(dtype);
    const std::vector<int32_t> targets = TargetsOnMaskedHead(kRows);
    const std::vector<float> temperatures(kRows, 0.7f), grad_log_probs(kRows, 0.5f);
    std::vector<float> log_probs(kRows);
    std::vector<RowStats> stats(kRows);
    forward->TokenLogProbs(hidden.view(), masked.head.view(), kLogitsLimit, targets.data(),
                           temperatures.data(), log_probs.data(), stats.data());
    for (const float of_entropy : {0.0f, 0.3f, -20.0f}) {
      const std::vector<float> grad_entropy(kRows, of_entropy);
      const TestMatrix dhidden(dtype, kRows, kLogitsDim);
      std::vector<float> dhead(static_cast<size_t>(kLogitsVocab * kLogitsDim), 0.0f);
      backward->TokenLogProbs(hidden.view(), masked.head.view(), kLogitsLimit, targets.data(),
                              temperatures.data(), stats.data(), grad_log_probs.data(),
                              grad_entropy.data(), dhidden.view(), dhead.data());
      double learned = 0;
      for (int64_t id = 0; id < kLogitsLimit; ++id) {
        for (int64_t j = 0; j < kLogitsDim; ++j) {
          const float gradient = dhead[static_cast<size_t>(id * kLogitsDim + j)];
          REQUIRE(std::isfinite(gradient));
          if (MaskedHead::masked(id)) REQUIRE(gradient == 0.0f);
          learned += std::abs(static_cast<double>(gradient));
        }
      }
      REQUIRE(learned > 0.0);
      for (int64_t i = 0; i < kRows; ++i) {
        for (int64_t j = 0; j < kLogitsDim; ++j) REQUIRE(std::isfinite(dhidden.At(i, j)));
      }
    }
  }
}

TEST_CASE("Sample inverts the cumulative distribution over ascending ids", "[ops][logits]") {
  const auto ops = testing::MakeForward(DType::kBFloat16, 2);
  const TestMatrix one = TestMatrix::Random(DType::kBFloat16, 1, kLogitsDim, 1, 1.0f);
  const TestWeight head(DType::kBFloat16, kLogitsVocab, kLogitsDim, 2, 0.6f);
  constexpr int64_t kDraws = 4000;
  TestMatrix hidden(DType::kBFloat16, kDraws, kLogitsDim);
  std::vector<SampleRow> rows;
  for (int64_t i = 0; i < kDraws; ++i) {
    for (int64_t j = 0; j < kLogitsDim; ++j) hidden.Set(i, j, one.At(0, j));
    rows.push_back({0.7f, 1.0f, -1, RandomUniform(3, 4, static_cast<uint64_t>(i))});
  }
  std::vector<SampledToken> tokens(kDraws);
  ops->Sample(hidden.view(), head.view(), kLogitsLimit, rows, tokens.data());
  const std::vector<double> p = Probabilities(AllLogits(*ops, one, head), 0, 0.7f);
  std::vector<double> cumulative;
  double sum = 0;
  for (const double value : p) cumulative.push_back(sum += value);
  for (size_t i = 0; i < kDraws; ++i) {
    const auto id = static_cast<size_t>(tokens[i].token);
    REQUIRE(id < static_cast<size_t>(kLogitsLimit));
    const double u = static_cast<double>(rows[i].uniform);
    REQUIRE(u <= cumulative[id] + 1e-6);
    REQUIRE(u >= cumulative[id] - p[id] - 1e-6);
    REQUIRE(tokens[i].log_prob == Approx(std::log(p[id])).margin(2e-5));
  }
}

namespace {

// What the sampler's functions choose from a row of logits.
struct Chooser {
  explicit Chooser(std::vector<float> row_logits)
      : kernels(**ChooseKernels(DType::kFloat32)), logits(std::move(row_logits)) {
    chunks.resize(static_cast<size_t>(VocabChunks(std::ssize(logits))));
    for (int64_t chunk = 0; chunk < std::ssize(chunks); ++chunk) {
      kernels.chunk_stats(logits.data() + chunk * kVocabChunk,
                          ChunkColumns(chunk, std::ssize(logits)), 1.0f,
                          &chunks[static_cast<size_t>(chunk)]);
    }
    kernels.combine_chunks(chunks.data(), std::ssize(chunks), &stats);
  }
  size_t At(double uniform) const {
    const SampleRow row = {.uniform = uniform};
    const ChunkChoice choice = ChooseChunk(kernels, row, chunks.data(), std::ssize(chunks), stats);
    std::vector<float> scratch(kVocabChunk);
    return static_cast<size_t>(
        choice.chunk * kVocabChunk +
        ChooseInChunk(kernels, row, choice, stats, logits.data() + choice.chunk * kVocabChunk,
                      ChunkColumns(choice.chunk, std::ssize(logits)), scratch.data()));
  }

  const KernelSet& kernels;
  std::vector<float> logits;
  std::vector<ChunkStats> chunks;
  RowStats stats;
};

}  // namespace

// Three ids have nearly all of the probability; of the others a quarter each has 6e-8, 2e-7, 1e-6
// and 1e-10: with 23 random bits and sums in fp32 most of these are never drawn, and the others too
// often. The uniforms of ten million draws are too few to see each id, so that every id's own
// interval is tried, and its ends.
TEST_CASE("Ids of small probability are drawn as often as they should be", "[ops][logits]") {
  constexpr float kTail[] = {6e-8f, 2e-7f, 1e-6f, 1e-10f};
  std::vector<float> logits;
  for (size_t id = 0; id < 4000; ++id) logits.push_back(std::log(kTail[id % 4]));
  for (const size_t head : {5, 1500, 3000}) logits[head] = std::log(0.333f);
  const Chooser chooser(logits);
  std::vector<float> weights(logits.size());
  chooser.kernels.exp_logits(logits.data(), std::ssize(logits), 1.0f, chooser.stats.max,
                             weights.data());
  // Chunks are weighed by their sums in fp32, ids of a chunk by their own weights.
  double total = 0;
  std::vector<double> chunk_weights;
  for (const ChunkStats& chunk : chooser.chunks) {
    float scale = 0;
    chooser.kernels.exp_logits(&chunk.max, 1, 1.0f, chooser.stats.max, &scale);
    chunk_weights.push_back(static_cast<double>(chunk.sum * scale));
    total += chunk_weights.back();
  }
  double begin = 0, largest_error = 0;
  for (size_t chunk = 0; chunk < chunk_weights.size(); ++chunk) {
    const size_t first = chunk * kVocabChunk, last = std::min(first + kVocabChunk, logits.size());
    double own = 0;
    for (size_t id = first; id < last; ++id) own += static_cast<double>(weights[id]);
    largest_error = std::max(largest_error, std::abs(own / chunk_weights[chunk] - 1));
    for (size_t id = first; id < last; ++id) {
      const double share = static_cast<double>(weights[id]) / own * chunk_weights[chunk] / total;
      for (const double part : {0.05, 0.5, 0.95}) {
        INFO("id " << id << " of probability " << share << ", part " << part);
        REQUIRE(chooser.At(begin + part * share) == id);
      }
      begin += share;
    }
  }
  REQUIRE(begin == Approx(1.0).epsilon(1e-12));
  REQUIRE(largest_error < 1e-5);  // of a chunk's probability, relative
}

// A chi-squared test over classes of ids, with a fixed seed.
TEST_CASE("A million draws have the frequencies of their probabilities", "[ops][logits]") {
  std::vector<float> logits;
  for (size_t id = 0; id < 2100; ++id)
    logits.push_back(-0.006f * static_cast<float>(id * 7 % 2100));
  const Chooser chooser(logits);
  constexpr uint64_t kDraws = 1000000;
  std::vector<double> seen(logits.size());
  for (uint64_t i = 0; i < kDraws; ++i) ++seen[chooser.At(RandomUniform52(1, 2, i))];
  double total = 0, squares = 0, classes = 0, rare = 0, rare_expected = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  for (size_t id = 0; id < logits.size(); ++id) {
    const double expected = std::exp(static_cast<double>(logits[id])) / total * kDraws;
    if (expected < 5) {
      rare += seen[id];
      rare_expected += expected;
      continue;
    }
    squares += (seen[id] - expected) * (seen[id] - expected) / expected;
    ++classes;
  }
  REQUIRE(rare_expected > 5);
  squares += (rare - rare_expected) * (rare - rare_expected) / rare_expected;
  INFO("chi-squared " << squares << " with " << classes << " degrees of freedom");
  REQUIRE(std::abs(squares - classes) < 4 * std::sqrt(2 * classes));
}

TEST_CASE("Ids beyond the vocabulary limit are never sampled", "[ops][logits]") {
  const auto ops = testing::MakeForward(DType::kBFloat16, 1);
  // The masked ids have by far the largest logits.
  TestWeight head(DType::kBFloat16, kLogitsVocab, kLogitsDim, 2, 0.1f);
  for (int64_t id = kLogitsLimit; id < kLogitsVocab; ++id) {
    for (int64_t j = 0; j < kLogitsDim; ++j) head.source.Set(id, j, 50.0f);
  }
  head.Pack();
  TestMatrix hidden(DType::kBFloat16, 300, kLogitsDim);
  std::vector<SampleRow> rows;
  for (int64_t i = 0; i < 300; ++i) {
    for (int64_t j = 0; j < kLogitsDim; ++j) hidden.Set(i, j, 1.0f);
    const float u = i == 0 ? 0x1p-24f : i == 1 ? 1.0f - 0x1p-24f : RandomUniform(1, 1, i);
    rows.push_back({i % 4 == 2 ? 0.0f : 1.0f, i % 5 == 0 ? 0.9f : 1.0f, i % 7 == 0 ? 5 : -1, u});
  }
  std::vector<SampledToken> tokens(300);
  ops->Sample(hidden.view(), head.view(), kLogitsLimit, rows, tokens.data());
  for (const SampledToken& token : tokens) {
    REQUIRE(token.token < kLogitsLimit);
    REQUIRE(std::isfinite(token.log_prob));
  }
}

TEST_CASE("Greedy sampling takes the lowest id of the largest logit", "[ops][logits]") {
  const auto ops = testing::MakeForward(DType::kBFloat16, 1);
  TestWeight head(DType::kBFloat16, kLogitsVocab, kLogitsDim, 2, 0.1f);
  for (const int64_t id : {1500, 1200, 2200}) {
    for (int64_t j = 0; j < kLogitsDim; ++j) head.source.Set(id, j, 1.0f);
  }
  head.Pack();
  TestMatrix hidden(DType::kBFloat16, 1, kLogitsDim);
  for (int64_t j = 0; j < kLogitsDim; ++j) hidden.Set(0, j, 1.0f);
  SampledToken token;
  ops->Sample(hidden.view(), head.view(), kLogitsLimit, {{0.0f, 0.5f, 3, 0.9f}}, &token);
  REQUIRE(token.token == 1200);
  const float one = 1.0f;
  REQUIRE(Score(*ops, hidden.view(), head, &token.token, &one).log_probs[0] == token.log_prob);
}

TEST_CASE("Top-k and top-p keep the most probable ids only", "[ops][logits]") {
  const auto ops = testing::MakeForward(DType::kFloat32, 1);
  const TestWeight head(DType::kFloat32, kLogitsVocab, kLogitsDim, 2, 0.5f);
  const TestMatrix one = TestMatrix::Random(DType::kFloat32, 1, kLogitsDim, 1, 1.0f);
  const std::vector<double> p = Probabilities(AllLogits(*ops, one, head), 0, 1.0);
  std::vector<int32_t> order(p.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return p[static_cast<size_t>(a)] > p[static_cast<size_t>(b)];
  });
  // The shortest prefix with at least half of the probability of the first 20.
  double twenty = 0, half = 0;
  for (size_t i = 0; i < 20; ++i) twenty += p[static_cast<size_t>(order[i])];
  size_t prefix = 0;
  while (half < 0.5 * twenty) half += p[static_cast<size_t>(order[prefix++])];
  REQUIRE(prefix > 1);
  std::vector<int> seen(20);
  for (uint64_t i = 0; i < 400; ++i) {
    SampledToken token;
    ops->Sample(one.view(), head.view(), kLogitsLimit, {{1.0f, 0.5f, 20, RandomUniform(9, 9, i)}},
                &token);
    const auto rank =
        static_cast<size_t>(std::find(order.begin(), order.end(), token.token) - order.begin());
    REQUIRE(rank < prefix);
    ++seen[rank];
    // Scored over the full vocabulary.
    REQUIRE(token.log_prob == Approx(std::log(p[static_cast<size_t>(token.token)])).margin(1e-5));
  }
  for (size_t rank = 0; rank < prefix; ++rank) REQUIRE(seen[rank] > 0);
}

TEST_CASE("Scoring and sampling never hold the logits of all rows", "[ops][logits]") {
  constexpr int64_t kIds = 40000, kRows = 512;
  const TestMatrix hidden = TestMatrix::Random(DType::kBFloat16, kRows, kLogitsDim, 1, 2.0f);
  const TestWeight head(DType::kBFloat16, kIds, kLogitsDim, 2, 0.3f);
  const std::vector<int32_t> targets(kRows, 7);
  const std::vector<float> ones(kRows, 1.0f);
  std::vector<float> log_probs(kRows);
  std::vector<SampleRow> rows;
  for (uint64_t i = 0; i < kRows; ++i) rows.push_back({1.0f, 1.0f, -1, RandomUniform(5, 5, i)});
  std::vector<SampledToken> tokens(kRows);
  constexpr int64_t kThreads = 2;
  // As forward_ops.h says.
  constexpr int64_t kBound = kThreads * (512 << 10) + 12 * kRows * (kIds / 1024 + 1);
  static_assert(kBound * 40 < kRows * kIds * 4);
  const auto ops = testing::MakeForward(DType::kBFloat16, kThreads);
  const int64_t at_first = ops->workspace_bytes();
  std::vector<RowStats> stats(kRows);  // entropies too
  ops->TokenLogProbs(hidden.view(), head.view(), kIds, targets.data(), ones.data(),
                     log_probs.data(), stats.data());
  REQUIRE(ops->workspace_bytes() > at_first);
  REQUIRE(ops->workspace_bytes() <= kBound);
  ops->Sample(hidden.view(), head.view(), kIds, rows, tokens.data());
  REQUIRE(ops->workspace_bytes() <= kBound);
  // Filtered rows hold eight rows of logits, and a thread ranks the ids of one.
  for (SampleRow& row : rows) row.top_p = 0.9f;
  ops->Sample(hidden.Rows(0, 21), head.view(), kIds, {rows.begin(), rows.begin() + 21},
              tokens.data());
  REQUIRE(ops->workspace_bytes() <= kBound + 8 * (kIds + kLogitsDim) * 4 + kThreads * 8 * kIds);
}

// Scratch that the gradient of log-probs and entropies takes with a vocabulary of `ids`.
int64_t GradientScratch(int64_t ids, int64_t count, int64_t threads) {
  const TestMatrix hidden = TestMatrix::Random(DType::kBFloat16, count, kLogitsDim, 1, 2.0f);
  const TestWeight head(DType::kBFloat16, ids, kLogitsDim, 2, 0.3f);
  const auto rows = static_cast<size_t>(count);
  const std::vector<int32_t> targets(rows, 7);
  const std::vector<float> ones(rows, 1.0f);
  std::vector<float> log_probs(rows), dhead(static_cast<size_t>(ids * kLogitsDim), 0.0f);
  std::vector<RowStats> stats(rows);
  testing::MakeForward(DType::kBFloat16)
      ->TokenLogProbs(hidden.view(), head.view(), ids, targets.data(), ones.data(),
                      log_probs.data(), stats.data());
  const TestMatrix dhidden = TestMatrix::Random(DType::kBFloat16, count, kLogitsDim, 3, 0.0f);
  const auto ops = testing::MakeBackward(DType::kBFloat16, static_cast<int>(threads));
  ops->TokenLogProbs(hidden.view(), head.view(), ids, targets.data(), ones.data(), stats.data(),
                     ones.data(), ones.data(), dhidden.view(), dhead.data());
  REQUIRE(std::any_of(dhead.begin(), dhead.end(), [](float value) { return value != 0; }));
  return ops->workspace_bytes();
}

TEST_CASE("The gradient of log-probs and entropies never holds the logits of all rows",
          "[ops][logits]") {
  constexpr int64_t kIds = 40000, kRows = 512, kThreads = 2;
  // Logits of 64 rows and 1024 ids in fp32 per thread; their gradients in bf16, twice, for a block
  // of at most 1024 rows and the same ids; the block's hidden states and the ids' weights.
  constexpr int64_t kBound = kThreads * (256 << 10) + 2 * 2 * kRows * 1024 +
                             (kRows + 1024) * 64 * 2 + kRows * (kLogitsDim + 1) * 4 + (16 << 10);
  static_assert(kBound * 25 < kRows * kIds * 4);
  const int64_t bytes = GradientScratch(kIds, kRows, kThreads);
  REQUIRE(bytes > 2 * kRows * 1024);
  REQUIRE(bytes <= kBound);
  // The vocabulary has no part in it, beyond one chunk; a thread that found no work has no scratch.
  REQUIRE(GradientScratch(3000, kRows, kThreads) <= kBound);
  REQUIRE(GradientScratch(3000, kRows, 1) == GradientScratch(kIds, kRows, 1));
}

}  // namespace tandem
