#include "common/ops/cuda/rows/logits.h"

#include <cmath>

#include <catch2/catch.hpp>

#include "common/ops/cpu/kernels/isa.h"
#include "common/ops/cpu/sample_row.h"
#include "common/ops/numerics_layout.h"
#include "tests/common/ops/cuda/kernel_fixture.h"

namespace tandem {
namespace {
using testing::RandomFloats;
using testing::ScopedSeed;
using testing::TestMatrix;

constexpr int64_t kLogitsLimit = 2300, kLogitsChunks = 3, kLogitsStride = 3 * 1024;

struct Scores {
  std::vector<LogitSums> sums;
  std::vector<RowScore> rows;
};

// In calls of `chunks_at_once`.
Scores ScoreLogits(const std::vector<float>& logits,
                   int64_t first_row,
                   const std::vector<ScoredRow>& rows,
                   int64_t chunks_at_once) {
  const auto count = static_cast<int64_t>(rows.size());
  Scores scores = {std::vector<LogitSums>(static_cast<size_t>(count * kLogitsChunks)),
                   std::vector<RowScore>(rows.size())};
  std::vector<float> targets(rows.size(), NAN);
  for (int64_t chunk = 0; chunk < kLogitsChunks; chunk += chunks_at_once) {
    LaunchLogitSums(nullptr,
                    {.logits = logits.data() + first_row * kLogitsStride + chunk * kCudaVocabChunk,
                     .stride = kLogitsStride,
                     .rows = count,
                     .first_chunk = chunk,
                     .chunks = std::min(chunks_at_once, kLogitsChunks - chunk),
                     .vocab_limit = kLogitsLimit},
                    rows.data(), scores.sums.data(), targets.data());
  }
  LaunchRowScores(nullptr, count, kLogitsLimit, rows.data(), scores.sums.data(), targets.data(),
                  scores.rows.data());
  return scores;
}

// Random ones; `masked`: every third id is -inf, and the whole of chunk 1.
std::vector<float> TestLogits(int64_t rows, uint32_t seed, float scale, bool masked) {
  std::vector<float> logits = RandomFloats(rows, kLogitsStride, seed, scale);
  for (size_t i = 0; masked && i < logits.size(); ++i) {
    const size_t id = i % static_cast<size_t>(kLogitsStride);
    if (id % 3 == 1 || id / static_cast<size_t>(kCudaVocabChunk) == 1) logits[i] = -INFINITY;
  }
  return logits;
}

std::vector<ScoredRow> RowsToScore(int64_t count) {
  std::vector<ScoredRow> rows;
  for (int32_t i = 0; i < count; ++i) {
    rows.push_back({1.0f / (0.5f + 0.25f * static_cast<float>(i % 4)), i * 191 % 2300});
  }
  return rows;
}
}  // namespace

static_assert(kCudaVocabChunk == kVocabChunk);

TEST_CASE("From equal logits come the CPU's statistics and log-probs", "[cuda][logits]") {
  const KernelSet& cpu = **ChooseKernels(DType::kFloat32);
  constexpr int64_t kRows = 7;
  const bool masked = GENERATE(false, true);
  INFO("masked: " << masked);
  const std::vector<float> logits = TestLogits(kRows, 1, 9.0f, masked);
  const std::vector<ScoredRow> rows = RowsToScore(kRows);
  for (const uint64_t seed : testing::TwoSeeds()) {
    const ScopedSeed scoped(seed);
    const Scores scores = ScoreLogits(logits, 0, rows, 2);
    for (size_t row = 0; row < kRows; ++row) {
      ChunkStats chunks[kLogitsChunks];
      for (size_t chunk = 0; chunk < kLogitsChunks; ++chunk) {
        cpu.chunk_stats(&logits[row * kLogitsStride + chunk * 1024],
                        ChunkColumns(static_cast<int64_t>(chunk), kLogitsLimit),
                        rows[row].inverse_temperature, &chunks[chunk]);
        const LogitSums& sums = scores.sums[row * kLogitsChunks + chunk];
        REQUIRE(sums.max == chunks[chunk].max);
        REQUIRE(sums.sum == chunks[chunk].sum);
        REQUIRE(sums.weighted == chunks[chunk].weighted);
      }
      RowStats stats;
      cpu.combine_chunks(chunks, kLogitsChunks, &stats);
      const RowScore& score = scores.rows[row];
      REQUIRE(score.stats.max == stats.max);
      REQUIRE(score.stats.sum == stats.sum);
      REQUIRE(score.stats.log_sum == stats.log_sum);
      REQUIRE(score.stats.entropy == stats.entropy);
      const auto target = static_cast<size_t>(rows[row].target);
      REQUIRE(score.log_prob ==
              LogProb(logits[row * kLogitsStride + target], rows[row].inverse_temperature, stats));
    }
  }
}

TEST_CASE("A row's log-prob does not depend on rows or chunks at once", "[cuda][logits]") {
  constexpr int64_t kRows = 9;
  const std::vector<float> logits = RandomFloats(kRows, kLogitsStride, 2, 9.0f);
  const std::vector<ScoredRow> rows = RowsToScore(kRows);
  const Scores full = ScoreLogits(logits, 0, rows, kLogitsChunks);
  for (const int64_t m : {1, 2, 5}) {
    const Scores part = ScoreLogits(logits, 3, {rows.begin() + 3, rows.begin() + 3 + m}, 1);
    for (size_t i = 0; i < static_cast<size_t>(m); ++i) {
      REQUIRE(part.rows[i].log_prob == full.rows[i + 3].log_prob);
      REQUIRE(part.rows[i].stats.entropy == full.rows[i + 3].stats.entropy);
    }
  }
}

TEST_CASE("The gradient of logits has the CPU's bits", "[cuda][logits]") {
  const KernelSet& cpu = **ChooseKernels(DType::kBFloat16);
  constexpr int64_t kRows = 4;
  const bool masked = GENERATE(false, true);
  INFO("masked: " << masked);
  const std::vector<float> logits = TestLogits(kRows, 3, 6.0f, masked);
  const std::vector<ScoredRow> rows = RowsToScore(kRows);
  const Scores scores = ScoreLogits(logits, 0, rows, kLogitsChunks);
  std::vector<LogitsGradientRow> gradients;
  for (size_t row = 0; row < kRows; ++row) {
    gradients.push_back({.stats = scores.rows[row].stats,
                         .inverse_temperature = rows[row].inverse_temperature,
                         .grad_log_prob = 0.3f - static_cast<float>(row),
                         .grad_entropy = row % 2 == 0 ? 0.0f : 0.02f,
                         .target = rows[row].target});
  }
  // The last two chunks, up to the next multiple of eight ids.
  constexpr int64_t kFirst = 1024, kCols = 2304 - kFirst;
  for (const uint64_t seed : testing::TwoSeeds()) {
    const ScopedSeed scoped(seed);
    TestMatrix dlogits(DType::kBFloat16, kRows, kCols);
    LaunchLogitsBackward(nullptr,
                         {.logits = logits.data() + kFirst,
                          .stride = kLogitsStride,
                          .rows = kRows,
                          .first_chunk = 1,
                          .chunks = 2,
                          .vocab_limit = kLogitsLimit},
                         gradients.data(), dlogits.view());
    for (size_t row = 0; row < kRows; ++row) {
      std::vector<Bf16> expected(kCols, 0);
      const LogitsGradientRow& gradient = gradients[row];
      cpu.logits_back({.logits = &logits[row * kLogitsStride + kFirst],
                       .cols = kLogitsLimit - kFirst,
                       .target = gradient.target - kFirst,
                       .inverse_temperature = gradient.inverse_temperature,
                       .stats = gradient.stats,
                       .grad_log_prob = gradient.grad_log_prob,
                       .grad_entropy = gradient.grad_entropy,
                       .dlogits = expected.data()});
      for (int64_t col = 0; col < kCols; ++col) {
        REQUIRE(dlogits.At(static_cast<int64_t>(row), col) ==
                FromBf16(expected[static_cast<size_t>(col)]));
      }
    }
  }
}

}  // namespace tandem
