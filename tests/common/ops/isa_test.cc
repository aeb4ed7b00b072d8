// All kernel sets of a class give the same bits, for every op and for values near the denormals.
#include <catch2/catch.hpp>

#include "common/process/threads.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::ForcedIsa;
using testing::TestKv;
using testing::TestMatrix;
using testing::TestWeight;

// What every op of both interfaces makes of the same inputs.
struct Results {
  std::vector<TestMatrix> matrices;
  std::vector<float> floats;
  std::vector<int32_t> tokens;
};

bool Same(const Results& a, const Results& b) {
  for (size_t i = 0; i < a.matrices.size(); ++i) {
    if (!a.matrices[i].SameBits(b.matrices[i])) return false;
  }
  return a.floats == b.floats && a.tokens == b.tokens;
}

constexpr int64_t kIsaRows = 71;
constexpr AttentionShape kIsaShape = {6, 2, 18};

void RunIsaForward(DType dtype, float scale, Results& results) {
  const auto ops = testing::MakeForward(dtype, 2);
  const TestMatrix in = TestMatrix::Random(dtype, kIsaRows, 75, 1, scale);
  const TestMatrix norm = TestMatrix::Random(dtype, 1, 75, 2);
  const TestWeight weight(dtype, kIsaShape.qkv_cols(), 75, 3, scale, true);
  const TestWeight head(dtype, 1100, 75, 4, 1.0f);
  TestMatrix normed(dtype, kIsaRows, 75), qkv(dtype, kIsaRows, kIsaShape.qkv_cols());
  TestMatrix out(dtype, kIsaRows, kIsaShape.q_cols()), activated(dtype, kIsaRows, qkv.cols() / 2);
  TestMatrix sum = in;
  ops->RmsNorm(in.view(), norm.data(), 1e-6f, normed.view());
  ops->Linear(in.view(), weight.view(), qkv.view());
  ops->Add(sum.view(), normed.view());
  ops->SiluMul(qkv.view(), activated.view());
  TestKv kv(kIsaShape, dtype, 4, 1);
  const std::vector<int32_t> blocks = kv.Take(kIsaRows);
  const std::vector<AttentionSpan> spans = {{0, kIsaRows, 0, blocks.data()}};
  ops->RopeAndStore(qkv.view(), kIsaShape, testing::TestRope(kIsaShape.head_dim, kIsaRows), spans,
                    kv.view());
  ops->Attention(qkv.view(), kIsaShape, spans, kv.view(), out.view());
  std::vector<float> log_probs(kIsaRows), entropy;
  std::vector<RowStats> stats(kIsaRows);
  std::vector<int32_t> targets(kIsaRows, 1050);
  std::vector<float> temperatures(kIsaRows, 0.8f);
  ops->TokenLogProbs(normed.view(), head.view(), 1090, targets.data(), temperatures.data(),
                     log_probs.data(), stats.data());
  for (const RowStats& row : stats) entropy.push_back(row.entropy);
  std::vector<SampledToken> sampled(kIsaRows);
  std::vector<SampleRow> rows;
  for (int i = 0; i < kIsaRows; ++i) {
    rows.push_back({i % 5 == 0 ? 0.0f : 0.9f, i % 3 == 0 ? 0.9f : 1.0f, i % 4 == 0 ? 20 : -1,
                    (static_cast<float>(i) + 0.5f) / kIsaRows});
  }
  ops->Sample(normed.view(), head.view(), 1090, rows, sampled.data());
  results.matrices.insert(results.matrices.end(), {normed, qkv, sum, activated, out});
  for (const auto* values : {&log_probs, &entropy}) {
    results.floats.insert(results.floats.end(), values->begin(), values->end());
  }
  for (const SampledToken& token : sampled) {
    results.tokens.push_back(token.token);
    results.floats.push_back(token.log_prob);
  }
}

void RunBackward(DType dtype, float scale, Results& results) {
  const auto ops = testing::MakeBackward(dtype, 2);
  const TestMatrix qkv = TestMatrix::Random(dtype, kIsaRows, kIsaShape.qkv_cols(), 1);
  const TestMatrix out = TestMatrix::Random(dtype, kIsaRows, kIsaShape.q_cols(), 2);
  const TestMatrix dout = TestMatrix::Random(dtype, kIsaRows, kIsaShape.q_cols(), 3, scale);
  const TestWeight weight(dtype, kIsaShape.q_cols(), kIsaShape.qkv_cols(), 4, scale);
  const TestMatrix din(dtype, kIsaRows, kIsaShape.qkv_cols()),
      dqkv(dtype, kIsaRows, kIsaShape.qkv_cols());
  const TestMatrix dgate(dtype, kIsaRows, kIsaShape.qkv_cols());
  const TestMatrix dact = TestMatrix::Random(dtype, kIsaRows, kIsaShape.qkv_cols() / 2, 5, scale);
  std::vector<float> dweight(static_cast<size_t>(kIsaShape.q_cols() * kIsaShape.qkv_cols()));
  std::vector<float> dbias(static_cast<size_t>(kIsaShape.q_cols()));
  ops->LinearInput(dout.view(), weight.view(), din.view());
  ops->LinearWeights(dout.view(), qkv.view(), dweight.data(), dbias.data());
  const std::vector<AttentionSpan> spans = {{0, kIsaRows, 0, nullptr}};
  ops->Attention(qkv.view(), kIsaShape, spans, out.view(), dout.view(), dqkv.view());
  ops->Rope(dqkv.view(), kIsaShape, testing::TestRope(kIsaShape.head_dim, kIsaRows), spans);
  ops->SiluMul(qkv.view(), dact.view(), dgate.view());
  const TestMatrix norm = TestMatrix::Random(dtype, 1, kIsaShape.q_cols(), 6);
  const TestMatrix dnorm(dtype, kIsaRows, kIsaShape.q_cols());
  std::vector<float> dnorm_weight(static_cast<size_t>(kIsaShape.q_cols()));
  ops->HeadRmsNorms(out.view(), {1, 0, kIsaShape.q_cols()},
                    {.q_weight = norm.data(), .eps = 1e-6f, .dq_weight = dnorm_weight.data()},
                    dout.view(), dnorm.view());
  const TestWeight head(dtype, 1100, kIsaShape.q_cols(), 7, 1.0f);
  const std::vector<int32_t> targets(kIsaRows, 1050);
  const std::vector<float> temperatures(kIsaRows, 0.8f), gradients(kIsaRows, scale);
  const TestMatrix dhidden(dtype, kIsaRows, kIsaShape.q_cols());
  std::vector<float> dhead(static_cast<size_t>(1100 * kIsaShape.q_cols()));
  std::vector<float> log_probs(kIsaRows);
  std::vector<RowStats> stats(kIsaRows);
  testing::MakeForward(dtype, 2)->TokenLogProbs(out.view(), head.view(), 1090, targets.data(),
                                                temperatures.data(), log_probs.data(),
                                                stats.data());
  ops->TokenLogProbs(out.view(), head.view(), 1090, targets.data(), temperatures.data(),
                     stats.data(), gradients.data(), gradients.data(), dhidden.view(),
                     dhead.data());
  results.matrices.insert(results.matrices.end(), {din, dqkv, dgate, dnorm, dhidden});
  for (const auto* values : {&dweight, &dbias, &dnorm_weight, &dhead}) {
    results.floats.insert(results.floats.end(), values->begin(), values->end());
  }
}

}  // namespace

TEST_CASE("All kernel sets of a numerics class give the same bits", "[ops][isa]") {
  for (const std::string numerics : {"seq", "amx32"}) {
    const std::vector<std::string> isas = testing::RunnableIsas(numerics);
    if (isas.size() < 2) WARN("fewer than two kernel sets of class " << numerics << " run here");
    for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
      for (const float scale : {1.0f, 3e-19f, 1e-37f}) {
        Results first;
        for (const std::string& isa : isas) {
          const ForcedIsa forced(isa);
          Results results;
          RunIsaForward(dtype, scale, results);
          RunBackward(dtype, scale, results);
          if (isa == isas.front()) first = results;
          INFO(isa << " against " << isas.front() << " at scale " << scale);
          REQUIRE(Same(results, first));
        }
      }
    }
  }
}

TEST_CASE("TANDEM_CPU_ISA refuses unknown kernel sets and dtypes without kernels", "[ops][isa]") {
  {
    const ForcedIsa forced("sse2");
    const auto ops = CreateCpuForwardOps(DType::kBFloat16, std::make_shared<ThreadPool>(1));
    REQUIRE(ops.status().code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(std::string(ops.status().message()).find("amx, avx512bf16, avx512f, avx2") !=
            std::string::npos);
  }
  REQUIRE(CreateCpuForwardOps(DType::kFloat16, std::make_shared<ThreadPool>(1)).status().code() ==
          absl::StatusCode::kInvalidArgument);
  REQUIRE(CreateCpuBackwardOps(DType::kFloat16, std::make_shared<ThreadPool>(1)).status().code() ==
          absl::StatusCode::kInvalidArgument);
}

}  // namespace tandem
