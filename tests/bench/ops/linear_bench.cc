// Linear beside its counterparts and beside what the machine could do at best.
#include <algorithm>

#include <fmt/core.h>

#include "tests/bench/ops/benches.h"
#include "tests/bench/ops/machine_limits.h"
#include "tests/bench/ops/shapes.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem::bench {
namespace {
using testing::TestMatrix;
using testing::TestWeight;

void BenchShape(const WeightShape& shape, ForwardOps& ops, double peak, const Settings& settings) {
  const TestWeight weight(kBf16, shape.n, shape.k, 1, 0.1f);
  const auto bytes = static_cast<double>(weight.packed.size());
  const double bandwidth =
      ReadBandwidth(ops.kernel_set(), static_cast<int64_t>(bytes), settings.threads);
  for (const int64_t m : {1, 2, 4, 8, 15, 16, 32, 64, 256, 1024}) {
    if (m == 1024 && shape.n == kVocab) continue;
    const TestMatrix in = TestMatrix::Random(kBf16, m, shape.k, 2), out(kBf16, m, shape.n);
    const double flops = 2.0 * static_cast<double>(m * shape.n * shape.k);
    Counterparts others;
    if (settings.counterparts) others = LinearCounterparts(m, shape.n, shape.k);
    Compare(
        {fmt::format("linear {} {}x{} M={} threads {}", ops.kernel_set(), shape.n, shape.k, m,
                     settings.threads),
         flops},
        [&] { ops.Linear(in.view(), weight.view(), out.view()); }, others,
        [&](double seconds) {
          const double bound = std::min(peak, flops * bandwidth / bytes);
          return fmt::format(" bound {:.0f} share {:.2f}", bound * 1e-9, flops / seconds / bound);
        });
  }
}
}  // namespace

void BenchLinear(const Settings& settings) {
  const auto ops = testing::MakeForward(kBf16, settings.threads);
  const double peak = PeakFlops(ops->kernel_set(), settings.threads);
  fmt::print("peak of {} threads {}: products {:.0f} GFLOP/s\n", ops->kernel_set(),
             settings.threads, peak * 1e-9);
  for (const WeightShape& shape : kLayerWeights) BenchShape(shape, *ops, peak, settings);
  BenchShape({kVocab, kHidden}, *ops, peak, settings);
}

}  // namespace tandem::bench
