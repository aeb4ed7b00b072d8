// The LM head: log-probs, their gradients, sampling.
#include <fmt/core.h>

#include "tests/bench/ops/benches.h"
#include "tests/bench/ops/shapes.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem::bench {
namespace {
using testing::TestMatrix;
using testing::TestWeight;

// What `rows` of the head read and write.
struct Head {
  Head(int64_t rows, const TestWeight& head, int threads)
      : weight(head.view()),
        forward(testing::MakeForward(kBf16, threads)),
        backward(testing::MakeBackward(kBf16, threads)),
        hidden(TestMatrix::Random(kBf16, rows, kHidden, 2)),
        dhidden(kBf16, rows, kHidden),
        targets(static_cast<size_t>(rows), 5),
        ones(targets.size(), 1.0f),
        log_probs(ones),
        stats(targets.size()) {}

  void LogProbs() {
    forward->TokenLogProbs(hidden.view(), weight, kVocab, targets.data(), ones.data(),
                           log_probs.data(), stats.data());
  }
  void Gradients(float* dhead) {
    backward->TokenLogProbs(hidden.view(), weight, kVocab, targets.data(), ones.data(),
                            stats.data(), ones.data(), nullptr, dhidden.view(), dhead);
  }

  LinearWeight weight;
  std::unique_ptr<ForwardOps> forward;
  std::unique_ptr<BackwardOps> backward;
  TestMatrix hidden, dhidden;
  std::vector<int32_t> targets;
  std::vector<float> ones, log_probs;
  std::vector<RowStats> stats;
};

void CompareHead(const char* op,
                 int64_t rows,
                 const std::function<void()>& ours,
                 const std::function<Counterparts(int64_t, int64_t, int64_t)>& counterparts,
                 const Settings& settings) {
  Compare({fmt::format("op {} {}x{} threads {}", op, rows, kVocab, settings.threads)}, ours,
          settings.counterparts ? counterparts(rows, kVocab, kHidden) : Counterparts());
}

}  // namespace

void BenchHead(const Settings& settings) {
  const TestWeight weight(kBf16, kVocab, kHidden, 1, 0.05f);
  for (const int64_t rows : {kDecodeRows, kTrainRows}) {
    Head head(rows, weight, settings.threads);
    CompareHead(
        "log-probs", rows, [&] { head.LogProbs(); }, LogProbCounterparts, settings);
  }
  for (const int64_t rows : {int64_t{1}, int64_t{8}, kDecodeRows}) {
    Head head(rows, weight, settings.threads);
    const std::vector<SampleRow> wanted(static_cast<size_t>(rows));
    std::vector<SampledToken> tokens(wanted.size());
    const auto sample = [&] {
      head.forward->Sample(head.hidden.view(), weight.view(), kVocab, wanted, tokens.data());
    };
    CompareHead("sample", rows, sample, SampleCounterparts, settings);
  }
  Head head(kTrainRows, weight, settings.threads);
  std::vector<float> dhead(kVocab * kHidden);
  head.LogProbs();
  CompareHead(
      "backward log-probs", kTrainRows, [&] { head.Gradients(dhead.data()); },
      LogProbBackwardCounterparts, settings);
  const auto both = [&] {
    head.LogProbs();
    head.Gradients(dhead.data());
  };
  CompareHead("log-probs with backward", kTrainRows, both, LogProbTrainingCounterparts, settings);
}

}  // namespace tandem::bench
