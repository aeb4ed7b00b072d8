// The ops that take rows one by one, forward.
#include <fmt/core.h>

#include "tests/bench/ops/benches.h"
#include "tests/bench/ops/shapes.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem::bench {
namespace {
using testing::TestMatrix;
using testing::TestWeight;

void BenchAt(int64_t rows, const TestWeight& table, const Settings& settings) {
  const auto ops = testing::MakeForward(kBf16, settings.threads);
  const auto compare = [&](const char* op, int64_t cols, const auto& ours, auto counterparts) {
    Compare({fmt::format("op {} {}x{} threads {}", op, rows, cols, settings.threads)}, ours,
            settings.counterparts ? counterparts(rows, cols) : Counterparts());
  };
  const TestMatrix x = TestMatrix::Random(kBf16, rows, kHidden, 2), out = x;
  const TestMatrix weight = TestMatrix::Random(kBf16, 1, kHidden, 3);
  compare(
      "rms_norm", kHidden, [&] { ops->RmsNorm(x.view(), weight.data(), kEps, out.view()); },
      RmsNormCounterparts);
  compare(
      "residual add", kHidden, [&] { ops->Add(out.view(), x.view()); }, AddCounterparts);
  const TestMatrix gate_up = TestMatrix::Random(kBf16, rows, 2 * kFfn, 4), up(kBf16, rows, kFfn);
  compare(
      "silu_mul", kFfn, [&] { ops->SiluMul(gate_up.view(), up.view()); }, SiluMulCounterparts);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < rows; ++i) ids.push_back(static_cast<int32_t>(i * 7919 % kVocab));
  compare(
      "embed", kHidden, [&] { ops->Embed(ids.data(), table.view(), out.view()); },
      [](int64_t m, int64_t cols) { return EmbedCounterparts(m, kVocab, cols); });
}

}  // namespace

void BenchRows(const Settings& settings) {
  const TestWeight table(kBf16, kVocab, kHidden, 1, 0.05f);
  for (const int64_t rows : {kDecodeRows, kTrainRows}) BenchAt(rows, table, settings);
}

}  // namespace tandem::bench
