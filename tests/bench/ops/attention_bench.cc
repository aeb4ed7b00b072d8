// Rotation, KV store and attention, forward and backward.
#include <fmt/core.h>

#include "tests/bench/ops/benches.h"
#include "tests/bench/ops/spans.h"

namespace tandem::bench {
namespace {
using testing::TestMatrix;

struct Case {
  const char* name;
  int64_t sequences, rows, context;
};

std::string Title(const char* what, const Case& c, const Settings& settings) {
  return fmt::format("{} {} at {} threads {}", what, c.sequences, c.context, settings.threads);
}

void BenchForward(const Case& c, const Settings& settings) {
  Spans s(c.sequences, c.rows, c.context);
  const auto ops = testing::MakeForward(kBf16, settings.threads);
  const auto with = [&](auto counterparts) {
    return settings.counterparts ? counterparts(kAttention, c.sequences, c.rows, c.context)
                                 : Counterparts();
  };
  Compare(
      {Title(fmt::format("op {} rope and store", c.name).c_str(), c, settings)},
      [&] { ops->RopeAndStore(s.qkv.view(), kAttention, s.rope, s.spans, s.kv.view()); },
      with(RopeCounterparts));
  const auto attention = [&] {
    ops->Attention(s.qkv.view(), kAttention, s.spans, s.kv.view(), s.out.view());
  };
  Compare({Title(c.name, c, settings)}, attention, with(AttentionCounterparts));
  if (!settings.counterparts) return;
  Compare({Title(fmt::format("op {} attention", c.name).c_str(), c, settings)}, attention,
          with(AttentionReformulations));
}

void BenchGradients(const Case& c, const Settings& settings) {
  Spans s(c.sequences, c.rows, c.context);
  const auto forward = testing::MakeForward(kBf16, settings.threads);
  const auto ops = testing::MakeBackward(kBf16, settings.threads);
  forward->RopeAndStore(s.qkv.view(), kAttention, s.rope, s.spans, s.kv.view());
  forward->Attention(s.qkv.view(), kAttention, s.spans, s.kv.view(), s.out.view());
  const TestMatrix dout = TestMatrix::Random(kBf16, s.out.rows(), kAttention.q_cols(), 3);
  const TestMatrix dqkv = s.qkv;
  const auto with = [&](auto counterparts) {
    return settings.counterparts ? counterparts(kAttention, c.sequences, c.rows) : Counterparts();
  };
  Compare(
      {Title("op backward attention", c, settings)},
      [&] {
        ops->Attention(s.qkv.view(), kAttention, s.spans, s.out.view(), dout.view(), dqkv.view());
      },
      with(AttentionBackwardCounterparts));
  Compare(
      {Title("op backward rope", c, settings)},
      [&] { ops->Rope(dqkv.view(), kAttention, s.rope, s.spans); }, with(RopeBackwardCounterparts));
}

}  // namespace

void BenchAttention(const Settings& settings) {
  for (const Case& c : {Case{"decode", 64, 1, 128},
                        {"decode", 64, 1, 512},
                        {"decode", 64, 1, 1024},
                        {"prefill", 1, 64, 64},
                        {"prefill", 1, 512, 512},
                        {"prefill", 1, 1024, 1024},
                        {"prefill", 64, 64, 64}}) {
    BenchForward(c, settings);
  }
  for (const Case& c : {Case{"train", 32, 64, 64}, {"train", 4, 512, 512}}) {
    BenchGradients(c, settings);
  }
}

}  // namespace tandem::bench
