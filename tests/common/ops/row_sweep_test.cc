// The contract of forward_ops.h for every op and kernel set: a row's bits do not depend on the
// number of rows, its place among them, its mates, the placement of pages or threads.
#include <algorithm>
#include <numeric>

#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::Gather;
using testing::kBf16;
using testing::TestKv;
using testing::TestMatrix;
using testing::TestWeight;

constexpr int64_t kSequences = 8, kLength = 128, kForwardRows = kSequences * kLength,
                  kForwardDim = 72;
constexpr int64_t kForwardVocab = 1200, kForwardLimit = 1150;
constexpr AttentionShape kForwardShape = {6, 2, 24};

// Row r of everything belongs to position r % kLength of sequence r / kLength.
struct ForwardInputs {
  TestMatrix in = TestMatrix::Random(kBf16, kForwardRows, kForwardDim, 1, 2.0f);
  TestMatrix qkv = TestMatrix::Random(kBf16, kForwardRows, kForwardShape.qkv_cols(), 2, 1.0f);
  TestMatrix norm = TestMatrix::Random(kBf16, 1, kForwardDim, 3);
  TestWeight weight = TestWeight(kBf16, 101, kForwardDim, 4, 0.3f, true);
  TestWeight head = TestWeight(kBf16, kForwardVocab, kForwardDim, 5, 0.5f);
  RopeTable rope = testing::TestRope(kForwardShape.head_dim, kLength);
};

SampleRow SamplingOf(int64_t row) {
  return {row % 7 == 0 ? 0.0f : 0.9f, row % 31 == 0 ? 0.8f : 1.0f, row % 37 == 0 ? 30 : -1,
          RandomUniform(1, 2, static_cast<uint64_t>(row))};
}

struct Outputs {
  std::vector<std::pair<std::string, TestMatrix>> matrices;
  std::vector<float> log_probs, entropies;
  std::vector<int32_t> tokens;
};

void RunHeadForward(ForwardOps& ops,
                    const ForwardInputs& inputs,
                    const TestMatrix& hidden,
                    const std::vector<int64_t>& rows,
                    Outputs& outputs) {
  std::vector<SampleRow> sampling;
  for (const int64_t row : rows) sampling.push_back(SamplingOf(row));
  std::vector<SampledToken> sampled(rows.size());
  ops.Sample(hidden.view(), inputs.head.view(), kForwardLimit, sampling, sampled.data());
  std::vector<float> temperatures;
  for (size_t i = 0; i < rows.size(); ++i) {
    outputs.tokens.push_back(sampled[i].token);
    temperatures.push_back(sampling[i].temperature);
  }
  std::vector<RowStats> stats(rows.size());
  outputs.log_probs.resize(rows.size());
  ops.TokenLogProbs(hidden.view(), inputs.head.view(), kForwardLimit, outputs.tokens.data(),
                    temperatures.data(), outputs.log_probs.data(), stats.data());
  for (size_t i = 0; i < rows.size(); ++i) {
    outputs.entropies.push_back(stats[i].entropy);
    REQUIRE(sampled[i].log_prob == outputs.log_probs[i]);
    REQUIRE(sampled[i].entropy == stats[i].entropy);
  }
}

// Every op on a batch of these rows. Keys and values of whole sequences lie in pages that `seed`
// places; a row attends alone, or all rows of a sequence together where `rows` are all in order.
Outputs RunOps(ForwardOps& ops,
               const ForwardInputs& inputs,
               const std::vector<int64_t>& rows,
               uint32_t seed) {
  const auto count = static_cast<int64_t>(rows.size());
  TestKv kv(kForwardShape, kBf16, kSequences * (kLength / kKvBlockTokens), seed);
  std::vector<std::vector<int32_t>> blocks;
  std::vector<AttentionSpan> sequences, spans;
  for (int64_t s = 0; s < kSequences; ++s) {
    blocks.push_back(kv.Take(kLength));
    sequences.push_back({s * kLength, kLength, 0, blocks.back().data()});
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    spans.push_back({i, 1, row % kLength, blocks[static_cast<size_t>(row / kLength)].data()});
  }
  if (count == kForwardRows) spans = sequences;
  const TestMatrix all = inputs.qkv;
  ops.RopeAndStore(all.view(), kForwardShape, inputs.rope, sequences, kv.view());
  const TestMatrix in = Gather(inputs.in, rows), rotated = Gather(inputs.qkv, rows), sum = in;
  const TestMatrix normed(kBf16, count, kForwardDim), linear(kBf16, count, 101);
  const TestMatrix silu(kBf16, count, kForwardDim / 2),
      attention(kBf16, count, kForwardShape.q_cols());
  const TestMatrix embedded(kBf16, count, kForwardDim);
  const std::vector<int32_t> ids(rows.begin(), rows.end());
  ops.Embed(ids.data(), inputs.head.view(), embedded.view());
  ops.RmsNorm(in.view(), inputs.norm.data(), 1e-5f, normed.view());
  ops.Linear(in.view(), inputs.weight.view(), linear.view());
  ops.Add(sum.view(), normed.view());
  ops.SiluMul(in.view(), silu.view());
  // Elsewhere, every span in a block of its own: a row that is stored again would clear those
  // behind it.
  TestKv again(kForwardShape, kBf16, count, seed);
  std::vector<std::vector<int32_t>> own;
  std::vector<AttentionSpan> stored = spans;
  for (AttentionSpan& span : stored) {
    own.push_back(span.rows == 1 ? std::vector<int32_t>(2, again.Take(1)[0]) : again.Take(kLength));
    span.blocks = own.back().data();
  }
  ops.RopeAndStore(rotated.view(), kForwardShape, inputs.rope, stored, again.view());
  ops.Attention(rotated.view(), kForwardShape, spans, kv.view(), attention.view());
  Outputs outputs;
  outputs.matrices = {{"embed", embedded}, {"norm", normed},  {"linear", linear},      {"add", sum},
                      {"silu", silu},      {"rope", rotated}, {"attention", attention}};
  RunHeadForward(ops, inputs, normed, rows, outputs);
  return outputs;
}

// Row i of `part` is row rows[i] of `full`.
void RequireSameOutputRows(const Outputs& part,
                           const Outputs& full,
                           const std::vector<int64_t>& rows) {
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    bool same = true;
    for (size_t i = 0; i < rows.size(); ++i) {
      same = same && part.matrices[m].second.SameRow(static_cast<int64_t>(i),
                                                     full.matrices[m].second, rows[i]);
    }
    INFO(part.matrices[m].first);
    REQUIRE(same);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<size_t>(rows[i]);
    REQUIRE(part.tokens[i] == full.tokens[row]);
    REQUIRE(part.log_probs[i] == full.log_probs[row]);
    REQUIRE(part.entropies[i] == full.entropies[row]);
  }
}

void SweepForwardRows(const ForwardInputs& inputs,
                      const Outputs& full,
                      const std::vector<int64_t>& all) {
  std::mt19937 random(11);
  for (const int threads : {1, 2}) {
    const auto ops = testing::MakeForward(kBf16, threads);
    for (const int64_t m :
         {1, 2, 3, 4, 7, 8, 13, 15, 16, 17, 31, 32, 33, 63, 129, 240, 511, 1023}) {
      std::vector<int64_t> rows = all;
      std::shuffle(rows.begin(), rows.end(), random);
      rows.resize(static_cast<size_t>(m));
      INFO(m << " rows, " << threads << " threads");
      RequireSameOutputRows(RunOps(*ops, inputs, rows, static_cast<uint32_t>(m)), full, rows);
    }
    RequireSameOutputRows(RunOps(*ops, inputs, all, 99), full, all);
  }
}

}  // namespace

TEST_CASE("No op's row depends on its batch, in any kernel set", "[ops][sweep]") {
  const ForwardInputs inputs;
  std::vector<int64_t> all(kForwardRows);
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::string> run;
  for (const std::string numerics : {"seq", "amx32"}) {
    Outputs first;
    for (const std::string& isa : testing::RunnableIsas(numerics)) {
      const testing::ForcedIsa forced(isa);
      const Outputs full = RunOps(*testing::MakeForward(kBf16, 1), inputs, all, 1);
      if (first.matrices.empty()) first = full;
      INFO(isa);
      RequireSameOutputRows(full, first, all);
      SweepForwardRows(inputs, full, all);
      run.push_back(isa);
    }
  }
  for (const char* isa : {"amx", "amx-emulated", "avx512bf16", "avx512f", "avx2"}) {
    if (std::find(run.begin(), run.end(), isa) == run.end()) {
      WARN("this machine lacks kernel set " << isa << ": not swept");
    }
  }
}

}  // namespace tandem
