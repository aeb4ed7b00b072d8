// Linear and attention at the shapes of SmolLM2-135M, beside their counterparts.
#include <fmt/core.h>

#include "tests/bench/ops/benches.h"
#include "tests/bench/ops/machine_limits.h"
#include "tests/bench/ops/stopwatch.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem::bench {
namespace {
using testing::TestKv;
using testing::TestMatrix;
using testing::TestWeight;
constexpr DType kBf16 = DType::kBFloat16;

struct Shape {
  int64_t n, k;
};
constexpr Shape kShapes[] = {{576, 576}, {960, 576}, {3072, 576}, {576, 1536}, {49152, 576}};

void BenchSpans(const char* name,
                int64_t sequences,
                int64_t rows,
                int64_t context,
                int threads,
                bool counterparts) {
  const AttentionShape shape = {9, 3, 64};
  const RopeTable rope = testing::TestRope(64, 2048);
  TestKv kv(shape, kBf16, sequences * (context / kKvBlockTokens + 1), 1);
  std::vector<std::vector<int32_t>> blocks;
  std::vector<AttentionSpan> spans;
  for (int64_t i = 0; i < sequences; ++i) {
    blocks.push_back(kv.Take(context));
    spans.push_back({i * rows, rows, context - rows, blocks.back().data()});
  }
  const TestMatrix qkv = TestMatrix::Random(kBf16, sequences * rows, shape.qkv_cols(), 2);
  const TestMatrix dout = TestMatrix::Random(kBf16, sequences * rows, shape.q_cols(), 3);
  const TestMatrix out(kBf16, qkv.rows(), shape.q_cols()), dqkv = qkv;
  const auto ops = testing::MakeForward(kBf16, threads);
  const auto backward = testing::MakeBackward(kBf16, threads);
  const double store =
      BestSeconds([&] { ops->RopeAndStore(qkv.view(), shape, rope, spans, kv.view()); });
  const auto more = [&](double) {
    std::string text = fmt::format(" rope {:.0f}", store * 1e6);
    if (rows == context) {
      const double back = BestSeconds([&] {
        backward->Attention(qkv.view(), shape, spans, out.view(), dout.view(), dqkv.view());
      });
      text += fmt::format(" backward {:.0f}", back * 1e6);
    }
    return text;
  };
  std::vector<Counterpart> others;
  if (counterparts) others = AttentionCounterparts(shape, sequences, rows, context);
  Compare(
      {fmt::format("{} {} at {} threads {}", name, sequences, context, threads), 1e6, true, "us"},
      [&] { ops->Attention(qkv.view(), shape, spans, kv.view(), out.view()); }, others, more);
}
}  // namespace

double Compare(const Comparison& comparison,
               const std::function<void()>& ours,
               const std::vector<Counterpart>& others,
               const std::function<std::string(double)>& more) {
  std::vector<std::function<void()>> bodies = {ours};
  for (const Counterpart& other : others) bodies.push_back(other.run);
  const std::vector<double> seconds = BestOf(bodies);
  const auto figure = [&](double s) {
    return comparison.time ? s * comparison.scale : comparison.scale / s;
  };
  std::string line = fmt::format("{}: tandem {:.1f}", comparison.name, figure(seconds[0]));
  double fastest = 1e9;
  for (size_t i = 0; i < others.size(); ++i) {
    line += fmt::format(" {} {:.1f}", others[i].name, figure(seconds[i + 1]));
    fastest = std::min(fastest, seconds[i + 1]);
  }
  if (!others.empty()) line += fmt::format(" ratio {:.2f}", fastest / seconds[0]);
  fmt::print("{}{} {}\n", line, more(seconds[0]), comparison.unit);
  std::fflush(stdout);
  return seconds[0];
}

void BenchLinear(int threads, bool counterparts) {
  const auto ops = testing::MakeForward(kBf16, threads);
  const double peak = PeakFlops(ops->kernel_set(), threads);
  fmt::print("peak of {} threads {}: products {:.0f} GFLOP/s\n", ops->kernel_set(), threads,
             peak * 1e-9);
  for (const Shape shape : kShapes) {
    const TestWeight weight(kBf16, shape.n, shape.k, 1, 0.1f);
    const auto bytes = static_cast<double>(weight.packed.size());
    const double bandwidth = ReadBandwidth(ops->kernel_set(), static_cast<int64_t>(bytes), threads);
    for (const int64_t m : {1, 2, 4, 8, 15, 16, 32, 64, 256, 1024}) {
      if (m == 1024 && shape.n > 10000) continue;
      const TestMatrix in = TestMatrix::Random(kBf16, m, shape.k, 2), out(kBf16, m, shape.n);
      const double flops = 2.0 * static_cast<double>(m * shape.n * shape.k);
      std::vector<Counterpart> others;
      if (counterparts) others = LinearCounterparts(m, shape.n, shape.k);
      Compare(
          {fmt::format("linear {}x{} M={} threads {}", shape.n, shape.k, m, threads), 1e-9 * flops,
           false, "GFLOP/s"},
          [&] { ops->Linear(in.view(), weight.view(), out.view()); }, others,
          [&](double seconds) {
            const double bound = std::min(peak, flops * bandwidth / bytes);
            return fmt::format(" bound {:.0f} share {:.2f}", bound * 1e-9, flops / seconds / bound);
          });
    }
  }
}

void BenchAttention(int threads, bool counterparts) {
  for (const int64_t context : {128, 512, 1024}) {
    BenchSpans("decode", 64, 1, context, threads, counterparts);
  }
  for (const int64_t tokens : {64, 512, 1024}) {
    BenchSpans("prefill", 1, tokens, tokens, threads, counterparts);
  }
  BenchSpans("prefill", 64, 64, 64, threads, counterparts);
}

}  // namespace tandem::bench
