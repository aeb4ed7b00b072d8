// Draws many tokens of a distribution with a long tail, by the sampler and by one with 23 random
// bits and sums in fp32, the sampler of earlier builds. Prints a chi-squared test of each, and what
// a draw takes of each, in turns.
//
//   tandem-sampler-bench [DRAWS]     100,000,000 by default
//
// The id that a sampler draws grows with the uniform. So the uniforms at which it changes, found by
// bisection, say what each uniform draws, and that many draws take seconds. The first ones are also
// made by the sampler itself, to confirm it.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "common/base/clock.h"
#include "common/base/philox.h"
#include "common/ops/cpu/kernels/isa.h"
#include "common/ops/cpu/sample_row.h"
#include "common/ops/numerics_layout.h"

namespace tandem::bench {
namespace {

// A row of logits and what scoring it leaves.
struct TailRow {
  explicit TailRow(std::vector<float> row_logits)
      : logits(std::move(row_logits)),
        kernels(**ChooseKernels(DType::kBFloat16)),
        chunks(static_cast<size_t>(VocabChunks(std::ssize(logits)))) {
    for (int64_t chunk = 0; chunk < std::ssize(chunks); ++chunk) {
      kernels.chunk_stats(Chunk(chunk), Columns(chunk), 1.0f, &chunks[static_cast<size_t>(chunk)]);
    }
    kernels.combine_chunks(chunks.data(), std::ssize(chunks), &stats);
  }
  const float* Chunk(int64_t chunk) const { return logits.data() + chunk * kVocabChunk; }
  int64_t Columns(int64_t chunk) const { return ChunkColumns(chunk, std::ssize(logits)); }

  std::vector<float> logits;
  const KernelSet& kernels;
  std::vector<ChunkStats> chunks;
  RowStats stats;
};

// A sampler as a function of the `bits` random bits that its uniform is made of.
struct Sampler {
  const char* name;
  int bits;
  int64_t (*draw)(const TailRow& row, uint64_t random, float* scratch);
};

int64_t Draw(const TailRow& tail, uint64_t random, float* scratch) {
  const SampleRow row = {.uniform = (static_cast<double>(random) + 0.5) * 0x1p-52};
  const ChunkChoice choice =
      ChooseChunk(tail.kernels, row, tail.chunks.data(), std::ssize(tail.chunks), tail.stats);
  return choice.chunk * kVocabChunk + ChooseInChunk(tail.kernels, row, choice, tail.stats,
                                                    tail.Chunk(choice.chunk),
                                                    tail.Columns(choice.chunk), scratch);
}

// The sampler of earlier builds.
int64_t EarlierDraw(const TailRow& tail, uint64_t random, float* scratch) {
  const float target = (static_cast<float>(random) + 0.5f) * 0x1p-23f * tail.stats.sum;
  float before = 0;
  int64_t chunk = 0;
  for (; chunk < std::ssize(tail.chunks) - 1; ++chunk) {
    const ChunkStats& stats = tail.chunks[static_cast<size_t>(chunk)];
    float scale = 0;
    tail.kernels.exp_logits(&stats.max, 1, 1.0f, tail.stats.max, &scale);
    if (before + stats.sum * scale > target) break;
    before += stats.sum * scale;
  }
  const int64_t cols = tail.Columns(chunk);
  tail.kernels.exp_logits(tail.Chunk(chunk), cols, 1.0f, tail.stats.max, scratch);
  int64_t last = 0;
  for (int64_t i = 0; i < cols; ++i) {
    last = i;
    before += scratch[i];
    if (before > target) break;
  }
  return chunk * kVocabChunk + last;
}

constexpr Sampler kSampler = {"sampler", 52, Draw};
constexpr Sampler kEarlier = {"earlier sampler", 23, EarlierDraw};

// The first bits of RandomUniform52.
uint64_t RandomBits(uint64_t index, int bits) {
  return static_cast<uint64_t>(RandomUniform52(1, 2, index) * 0x1p52) >> (52 - bits);
}

// Which id each random number draws.
class Steps {
 public:
  Steps(const TailRow& row, const Sampler& sampler)
      : row_(row), sampler_(sampler), scratch_(kVocabChunk) {
    const uint64_t last = (uint64_t{1} << sampler.bits) - 1;
    steps_.push_back({0, At(0)});
    Refine(0, last, steps_.front().id, At(last));
  }
  int64_t Find(uint64_t random) const {
    const auto after =
        std::upper_bound(steps_.begin(), steps_.end(), random,
                         [](uint64_t value, const Step& step) { return value < step.begin; });
    return std::prev(after)->id;
  }
  int64_t At(uint64_t random) { return sampler_.draw(row_, random, scratch_.data()); }

 private:
  struct Step {
    uint64_t begin;  // the first random number that draws the id
    int64_t id;
  };

  // Adds the steps in (first, last], whose ends draw these ids.
  void Refine(uint64_t first, uint64_t last, int64_t first_id, int64_t last_id) {
    if (first_id == last_id) return;
    if (last - first == 1) {
      steps_.push_back({last, last_id});
      return;
    }
    const uint64_t middle = first + (last - first) / 2;
    const int64_t middle_id = At(middle);
    Refine(first, middle, first_id, middle_id);
    Refine(middle, last, middle_id, last_id);
  }

  const TailRow& row_;
  const Sampler& sampler_;
  std::vector<float> scratch_;
  std::vector<Step> steps_;
};

// 4,096 ids: three hold nearly all of the probability; of the others a quarter each has about 6e-8,
// 2e-7, 1e-6 and 1e-9.
std::vector<float> TailLogits() {
  constexpr float kTail[] = {6e-8f, 2e-7f, 1e-6f, 1e-9f};
  std::vector<float> logits;
  for (size_t id = 0; id < 4096; ++id) logits.push_back(std::log(kTail[id % 4]));
  for (const size_t head : {5, 1500, 3000}) logits[head] = std::log(0.333f);
  return logits;
}

std::vector<double> Counts(const TailRow& row, const Sampler& sampler, uint64_t draws) {
  constexpr uint64_t kConfirmed = 200'000;
  Steps steps(row, sampler);
  std::vector<double> counts(row.logits.size());
  uint64_t differ = 0;
  for (uint64_t i = 0; i < draws; ++i) {
    const uint64_t random = RandomBits(i, sampler.bits);
    const int64_t id = steps.Find(random);
    if (i < kConfirmed) differ += steps.At(random) != id ? 1 : 0;
    ++counts[static_cast<size_t>(id)];
  }
  fmt::print("{}: {} of the first {} draws differ from what the steps say\n", sampler.name, differ,
             std::min(draws, kConfirmed));
  return counts;
}

// Classes are ids; those that are expected less than five times are one class a chunk.
void TestCounts(const TailRow& row, const Sampler& sampler, uint64_t draws) {
  const std::vector<double> counts = Counts(row, sampler, draws);
  std::vector<float> weights(row.logits.size());
  row.kernels.exp_logits(row.logits.data(), std::ssize(weights), 1.0f, row.stats.max,
                         weights.data());
  double total = 0;
  for (const float weight : weights) total += static_cast<double>(weight);
  double squares = 0, most = 0;
  int64_t classes = 0, never = 0;
  const auto add = [&](double seen, double expected) {
    if (expected <= 0) return;
    squares += (seen - expected) * (seen - expected) / expected;
    most = std::max(most, seen / expected);
    never += seen == 0 ? 1 : 0;
    ++classes;
  };
  for (size_t first = 0; first < counts.size(); first += kVocabChunk) {
    double rare = 0, rare_expected = 0;
    for (size_t id = first; id < std::min(first + kVocabChunk, counts.size()); ++id) {
      const double expected = static_cast<double>(weights[id]) / total * static_cast<double>(draws);
      if (expected >= 5) {
        add(counts[id], expected);
      } else {
        rare += counts[id];
        rare_expected += expected;
      }
    }
    add(rare, rare_expected);
  }
  const auto freedom = static_cast<double>(classes - 1);
  fmt::print(
      "{}: {} draws, {} classes, chi-squared {:.1f}, {:+.2f} standard deviations from {}; {} "
      "classes never drawn, the most frequent {:.2f} times as often as expected\n",
      sampler.name, draws, classes, squares, (squares - freedom) / std::sqrt(2 * freedom), freedom,
      never, most);
}

double NanosecondsOf(const TailRow& row, const Sampler& sampler, uint64_t draws) {
  std::vector<float> scratch(kVocabChunk);
  int64_t ids = 0;
  const Instant start = RealClock().Now();
  for (uint64_t i = 0; i < draws; ++i) {
    ids += sampler.draw(row, RandomBits(i, sampler.bits), scratch.data());
  }
  const double seconds = absl::ToDoubleSeconds(RealClock().Now() - start);
  return ids < 0 ? 0 : seconds * 1e9 / static_cast<double>(draws);
}

// Medians of turns, as a machine may have other work.
void CompareTimes(int64_t vocab) {
  std::vector<float> logits;
  for (int64_t id = 0; id < vocab; ++id) {
    logits.push_back(8.0f * RandomUniform(3, 4, static_cast<uint64_t>(id)));
  }
  const TailRow row(std::move(logits));
  constexpr int kTurns = 25;
  std::vector<double> now, before, ratios;
  for (int turn = 0; turn < kTurns; ++turn) {
    now.push_back(NanosecondsOf(row, kSampler, 400));
    before.push_back(NanosecondsOf(row, kEarlier, 400));
    ratios.push_back(now.back() / before.back());
  }
  for (std::vector<double>* values : {&now, &before, &ratios}) {
    std::nth_element(values->begin(), values->begin() + kTurns / 2, values->end());
  }
  fmt::print("a draw of {} ids: {:.0f} ns, earlier {:.0f} ns, ratio {:.2f}\n", vocab,
             now[kTurns / 2], before[kTurns / 2], ratios[kTurns / 2]);
}

int Run(int argc, char** argv) {
  const uint64_t draws = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100'000'000;
  for (const int64_t vocab : {int64_t{4096}, int64_t{49152}, int64_t{151936}}) CompareTimes(vocab);
  const TailRow tail(TailLogits());
  TestCounts(tail, kSampler, draws);
  TestCounts(tail, kEarlier, draws);
  return 0;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) { return tandem::bench::Run(argc, argv); }
