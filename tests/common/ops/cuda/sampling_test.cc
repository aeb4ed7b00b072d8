#include "common/ops/cuda/rows/sampling.h"

#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "common/ops/cpu/kernels/isa.h"
#include "common/ops/cpu/sample_row.h"
#include "common/ops/numerics_layout.h"
#include "tests/common/ops/cuda/kernel_fixture.h"

namespace tandem {
namespace {
using testing::RandomFloats;
using testing::ScopedSeed;

constexpr int64_t kSampledLimit = 2300, kSampledChunks = 3, kSampledStride = 3 * 1024;

std::vector<SampledToken> Draw(const std::vector<float>& logits,
                               const std::vector<SampleRow>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  std::vector<DrawRow> draws;
  std::vector<ScoredRow> scored;
  for (const SampleRow& row : rows) {
    draws.push_back(MakeDrawRow(row, kSampledLimit));
    scored.push_back({draws.back().inverse_temperature, -1});
  }
  std::vector<LogitSums> sums(static_cast<size_t>(count * kSampledChunks));
  std::vector<RowScore> scores(rows.size());
  std::vector<SampledToken> tokens(rows.size());
  const LogitsBlock block = {.logits = logits.data(),
                             .stride = kSampledStride,
                             .rows = count,
                             .first_chunk = 0,
                             .chunks = kSampledChunks,
                             .vocab_limit = kSampledLimit};
  LaunchLogitSums(nullptr, block, scored.data(), sums.data(), nullptr);
  LaunchRowScores(nullptr, count, kSampledLimit, scored.data(), sums.data(), nullptr,
                  scores.data());
  LaunchDraws(nullptr, block, draws.data(), sums.data(), scores.data(), tokens.data());
  return tokens;
}

// What the CPU's functions choose from a row of logits.
SampledToken DrawOnCpu(const float* logits, const SampleRow& row) {
  const KernelSet& cpu = **ChooseKernels(DType::kFloat32);
  std::vector<ChunkStats> chunks(kSampledChunks);
  const float inverse = InverseTemperature(row.temperature);
  for (size_t i = 0; i < kSampledChunks; ++i) {
    cpu.chunk_stats(logits + i * 1024, ChunkColumns(static_cast<int64_t>(i), kSampledLimit),
                    inverse, &chunks[i]);
  }
  RowStats stats;
  cpu.combine_chunks(chunks.data(), kSampledChunks, &stats);
  int64_t token = 0;
  if (IsFiltered(row, kSampledLimit)) {
    std::vector<float> weights(kSampledLimit);
    std::vector<int32_t> ids(kSampledLimit);
    token = ChooseFiltered(cpu, row, stats, logits, kSampledLimit, weights.data(), ids.data());
  } else {
    const ChunkChoice choice = ChooseChunk(cpu, row, chunks.data(), kSampledChunks, stats);
    std::vector<float> scratch(kVocabChunk);
    token = choice.chunk * kVocabChunk +
            ChooseInChunk(cpu, row, choice, stats, logits + choice.chunk * kVocabChunk,
                          ChunkColumns(choice.chunk, kSampledLimit), scratch.data());
  }
  return {static_cast<int32_t>(token), LogProb(logits[token], inverse, stats), stats.entropy};
}

void RequireCpuDraws(const std::vector<float>& logits, const std::vector<SampleRow>& rows) {
  for (const uint64_t seed : testing::TwoSeeds()) {
    const ScopedSeed scoped(seed);
    const std::vector<SampledToken> tokens = Draw(logits, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const SampledToken expected = DrawOnCpu(&logits[i * kSampledStride], rows[i]);
      INFO("row " << i << ", top_k " << rows[i].top_k << ", top_p " << rows[i].top_p);
      REQUIRE(tokens[i].token == expected.token);
      REQUIRE(tokens[i].log_prob == expected.log_prob);
      REQUIRE(tokens[i].entropy == expected.entropy);
    }
  }
}
}  // namespace

TEST_CASE("From equal logits come the CPU's tokens", "[cuda][sampling]") {
  constexpr size_t kRows = 24;
  const std::vector<float> logits = RandomFloats(kRows, kSampledStride, 1, 8.0f);
  std::vector<SampleRow> rows;
  for (uint64_t i = 0; i < kRows; ++i) {
    rows.push_back({.temperature = i % 6 == 0 ? 0.0f : 0.6f + 0.2f * static_cast<float>(i % 5),
                    .uniform = RandomUniform(1, 2, i)});
  }
  // The ends of the distribution.
  rows[1].uniform = 0x1p-24f;
  rows[2].uniform = 1.0f - 0x1p-24f;
  RequireCpuDraws(logits, rows);
}

TEST_CASE("Ids of a long tail are the CPU's, at both ends of their intervals", "[cuda][sampling]") {
  constexpr size_t kRows = 64;
  std::vector<float> logits(kRows * kSampledStride);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = i % kSampledStride % 700 == 5 ? 0.0f : -14.0f - 0.01f * static_cast<float>(i % 997);
  }
  std::vector<SampleRow> rows;
  for (uint64_t i = 0; i < kRows; ++i) {
    const double near = 0.25 * static_cast<double>(1 + i % 3);  // about where a head ends
    rows.push_back({.uniform = i % 2 == 0 ? RandomUniform52(1, 2, i)
                                          : near + 1e-5 * (RandomUniform52(3, 4, i) - 0.5)});
  }
  rows[0].uniform = 0x1p-53;
  rows[2].uniform = 1.0 - 0x1p-53;
  RequireCpuDraws(logits, rows);
}

TEST_CASE("Masked ids are never drawn, also where the last chunk has no other",
          "[cuda][sampling]") {
  constexpr size_t kRows = 48;
  constexpr size_t kFirstMasked = 2048;  // of the last chunk
  std::vector<float> logits = RandomFloats(kRows, kSampledStride, 9, 8.0f);
  std::vector<SampleRow> rows;
  for (size_t i = 0; i < kRows; ++i) {
    float* const row = &logits[i * kSampledStride];
    std::fill(row + kFirstMasked, row + kSampledStride, -INFINITY);
    for (size_t id = 1; id < kFirstMasked; id += 3) row[id] = -INFINITY;
    // A sum over chunks that rounding leaves below this end is met by some of the rows.
    rows.push_back({.temperature = 0.6f + 0.2f * static_cast<float>(i % 5),
                    .top_p = i % 6 == 5 ? 0.9f : 1.0f,
                    .top_k = i % 8 == 7 ? 50 : -1,
                    .uniform = i % 2 == 0 ? 1.0f - 0x1p-24f : RandomUniform(7, 8, i)});
  }
  RequireCpuDraws(logits, rows);
  for (const SampledToken& token : Draw(logits, rows)) {
    REQUIRE(token.token < static_cast<int32_t>(kFirstMasked));
    REQUIRE(token.token % 3 != 1);
    REQUIRE(std::isfinite(token.log_prob));
    REQUIRE(std::isfinite(token.entropy));
  }
}

TEST_CASE("Filtered rows get the CPU's tokens from equal logits", "[cuda][sampling]") {
  constexpr size_t kRows = 20;
  const std::vector<float> logits = RandomFloats(kRows, kSampledStride, 2, 7.0f);
  std::vector<SampleRow> rows;
  for (uint64_t i = 0; i < kRows; ++i) {
    rows.push_back({.temperature = 0.7f + 0.3f * static_cast<float>(i % 3),
                    .top_p = i % 3 == 0   ? 1.0f
                             : i % 3 == 1 ? 0.9f
                                          : 0.3f,
                    .top_k = i % 4 == 3 ? -1 : static_cast<int64_t>(i * i + 1),
                    .uniform = RandomUniform(3, 4, i)});
  }
  rows[4].top_p = 0.0f;  // the most probable id alone
  rows[5].top_k = 2299;
  rows[8].uniform = 1.0f - 0x1p-24f;
  RequireCpuDraws(logits, rows);
}

TEST_CASE("Of ids of one weight the lowest are kept", "[cuda][sampling]") {
  constexpr size_t kRows = 24;
  std::vector<float> logits(kRows * kSampledStride, -4.0f);
  std::vector<SampleRow> rows;
  for (size_t i = 0; i < kRows; ++i) {
    // Twelve ids of the same weight below one that is larger, in all chunks.
    for (size_t tie = 0; tie < 12; ++tie) logits[i * kSampledStride + 100 + tie * 190] = 2.0f;
    logits[i * kSampledStride + 1500] = 2.5f;
    rows.push_back({.top_p = i % 2 == 0 ? 1.0f : 0.6f,
                    .top_k = i % 3 == 2 ? -1 : 6,
                    .uniform = RandomUniform(5, 6, i)});
  }
  RequireCpuDraws(logits, rows);
  const std::vector<SampledToken> tokens = Draw(logits, rows);
  for (size_t i = 0; i < kRows; ++i) {
    if (rows[i].top_k != 6) continue;
    REQUIRE((tokens[i].token == 1500 || tokens[i].token <= 100 + 4 * 190));
  }
}

TEST_CASE("Ids beyond the limit and equal maxima do not mislead greedy rows", "[cuda][sampling]") {
  std::vector<float> logits(2 * kSampledStride, 0.5f);
  for (const size_t id : {1500, 1200, 2200}) logits[id] = 3.0f;
  for (size_t id = kSampledLimit; id < kSampledStride; ++id)
    logits[id] = logits[kSampledStride + id] = 50.0f;
  const std::vector<SampledToken> tokens =
      Draw(logits, {{.temperature = 0.0f, .top_p = 0.5f, .top_k = 3}, {.temperature = 0.0f}});
  REQUIRE(tokens[0].token == 1200);
  REQUIRE(tokens[1].token == 0);
  RequireCpuDraws(logits, {{.temperature = 1.0f, .uniform = 1.0f - 0x1p-24f},
                           {.temperature = 1.0f, .top_p = 0.99f, .uniform = 1.0f - 0x1p-24f}});
}

}  // namespace tandem
