// tandem-ops-bench [linear|backward|attention|logits|all] [cpu]: GFLOP/s of the CPU ops at the
// shapes of SmolLM2-135M, minimum time of several runs. Weights stay in cache where they fit.
// `cpu` counts the process's CPU seconds instead of wall time: for one thread on a busy machine.
#include <algorithm>
#include <functional>
#include <string>

#include <fmt/core.h>
#include <time.h>

#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::TestKv;
using testing::TestMatrix;
using testing::TestWeight;
constexpr DType kBf16 = DType::kBFloat16;

clockid_t g_clock = CLOCK_MONOTONIC;

double Now() {
  timespec time;
  clock_gettime(g_clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double BestSeconds(const std::function<void()>& body) {
  const double start = Now();
  double best = 1e9;
  for (int run = 0; run < 3 || Now() - start < 0.15; ++run) {
    const double from = Now();
    body();
    best = std::min(best, Now() - from);
  }
  return best;
}

struct Shape {
  int64_t n, k;
};
constexpr Shape kShapes[] = {{576, 576}, {960, 576}, {3072, 576}, {576, 1536}, {49152, 576}};

void BenchLinear() {
  for (const Shape shape : kShapes) {
    const TestWeight weight(kBf16, shape.n, shape.k, 1, 0.1f);
    for (const int threads : {1, 2}) {
      const auto ops = testing::MakeForward(kBf16, threads);
      std::string line = fmt::format("linear {}x{} threads {}:", shape.n, shape.k, threads);
      for (const int64_t m : {1, 8, 64, 256, 1024}) {
        if (m == 1024 && shape.n > 10000) continue;
        const TestMatrix in = TestMatrix::Random(kBf16, m, shape.k, 2), out(kBf16, m, shape.n);
        const double seconds =
            BestSeconds([&] { ops->Linear(in.view(), weight.view(), out.view()); });
        line += fmt::format("  M={} {:.0f}", m,
                            2e-9 * static_cast<double>(m * shape.n * shape.k) / seconds);
      }
      fmt::print("{} GFLOP/s\n", line);
    }
  }
}

void BenchBackward() {
  for (const Shape shape : kShapes) {
    if (shape.n > 10000) continue;
    const int64_t rows = 2048;
    const TestWeight weight(kBf16, shape.n, shape.k, 1, 0.1f);
    const TestMatrix in = TestMatrix::Random(kBf16, rows, shape.k, 2);
    const TestMatrix dout = TestMatrix::Random(kBf16, rows, shape.n, 3), din(kBf16, rows, shape.k);
    std::vector<float> dweight(static_cast<size_t>(shape.n * shape.k));
    for (const int threads : {1, 2}) {
      const auto ops = testing::MakeBackward(kBf16, threads);
      const double flops = 2e-9 * static_cast<double>(rows * shape.n * shape.k);
      const double input =
          BestSeconds([&] { ops->LinearInput(dout.view(), weight.view(), din.view()); });
      const double weights =
          BestSeconds([&] { ops->LinearWeights(dout.view(), in.view(), dweight.data(), nullptr); });
      fmt::print("backward {}x{} threads {}, {} rows:  dX {:.0f}  dW {:.0f} GFLOP/s\n", shape.n,
                 shape.k, threads, rows, flops / input, flops / weights);
    }
  }
}

void BenchAttention() {
  const AttentionShape shape = {9, 3, 64};
  const RopeTable rope = testing::TestRope(64, 2048);
  const auto run = [&](const char* name, int64_t sequences, int64_t rows, int64_t first) {
    TestKv kv(shape, kBf16, sequences * 17, 1);
    std::vector<std::vector<int32_t>> blocks;
    std::vector<AttentionSpan> spans;
    for (int64_t i = 0; i < sequences; ++i) {
      blocks.push_back(kv.Take(first + rows));
      spans.push_back({i * rows, rows, first, blocks.back().data()});
    }
    const TestMatrix qkv = TestMatrix::Random(kBf16, sequences * rows, shape.qkv_cols(), 2);
    const TestMatrix dout = TestMatrix::Random(kBf16, sequences * rows, shape.q_cols(), 3);
    const TestMatrix out(kBf16, qkv.rows(), shape.q_cols()), dqkv = qkv;
    const auto ops = testing::MakeForward(kBf16, 2);
    const auto backward = testing::MakeBackward(kBf16, 2);
    const double store =
        BestSeconds([&] { ops->RopeAndStore(qkv.view(), shape, rope, spans, kv.view()); });
    const double attend =
        BestSeconds([&] { ops->Attention(qkv.view(), shape, spans, kv.view(), out.view()); });
    std::string line = fmt::format("{} x {} at {}: rope {:.0f} us, attention {:.0f} us", sequences,
                                   name, first + rows, store * 1e6, attend * 1e6);
    if (first == 0) {
      const double back = BestSeconds([&] {
        backward->Attention(qkv.view(), shape, spans, out.view(), dout.view(), dqkv.view());
      });
      line += fmt::format(", backward {:.0f} us", back * 1e6);
    }
    fmt::print("{}\n", line);
  };
  for (const int64_t context : {128, 512, 1024}) run("decode", 64, 1, context - 1);
  for (const int64_t tokens : {64, 512, 1024}) run("prefill", 1, tokens, 0);
  run("prefill", 64, 64, 0);
}

void BenchLogits() {
  const TestWeight head(kBf16, 49152, 576, 1, 0.05f);
  const auto ops = testing::MakeForward(kBf16, 2);
  const auto backward = testing::MakeBackward(kBf16, 2);
  for (const int64_t m : {1, 8, 64, 512}) {
    const TestMatrix hidden = TestMatrix::Random(kBf16, m, 576, 2), dhidden(kBf16, m, 576);
    const std::vector<int32_t> targets(static_cast<size_t>(m), 5);
    std::vector<float> ones(static_cast<size_t>(m), 1.0f), log_probs = ones, dhead(49152 * 576);
    const std::vector<SampleRow> rows(static_cast<size_t>(m));
    std::vector<SampledToken> tokens(static_cast<size_t>(m));
    const double score = BestSeconds([&] {
      ops->TokenLogProbs(hidden.view(), head.view(), 49152, targets.data(), ones.data(),
                         log_probs.data(), nullptr);
    });
    const double sample =
        BestSeconds([&] { ops->Sample(hidden.view(), head.view(), 49152, rows, tokens.data()); });
    const double back = BestSeconds([&] {
      backward->TokenLogProbs(hidden.view(), head.view(), 49152, targets.data(), ones.data(),
                              ones.data(), nullptr, dhidden.view(), dhead.data());
    });
    fmt::print("head, {} rows: log-probs {:.2f} ms, sample {:.2f} ms, backward {:.1f} ms\n", m,
               score * 1e3, sample * 1e3, back * 1e3);
  }
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const std::string which = argc > 1 ? argv[1] : "all";
  if (argc > 2 && std::string(argv[2]) == "cpu") tandem::g_clock = CLOCK_PROCESS_CPUTIME_ID;
  if (which == "all" || which == "linear") tandem::BenchLinear();
  if (which == "all" || which == "backward") tandem::BenchBackward();
  if (which == "all" || which == "attention") tandem::BenchAttention();
  if (which == "all" || which == "logits") tandem::BenchLogits();
  return 0;
}
