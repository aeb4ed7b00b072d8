// The log-prob and entropy ops, forward and backward, against the reference's functions of logits.
// With the identity as head, hidden states are logits and their gradients are gradients of logits.
#include <cmath>

#include <catch2/catch.hpp>

#include "common/ops/backward_ops.h"
#include "common/ops/cpu/packed_weight.h"
#include "common/ops/forward_ops.h"
#include "common/process/threads.h"
#include "tests/support/golden.h"
#include "tests/support/golden_tensor.h"
#include "trainer_worker/forward_backward/layer_loop.h"
#include "trainer_worker/losses/token_losses.h"

namespace tandem {
namespace {

using testing::CompareValues;
using testing::GoldenCase;
using testing::GoldenFamily;
using testing::GoldenTensor;
using testing::Json;
using testing::ParseTensor;

struct Bounds {
  double rtol = 1e-5;
  double atol = 5e-5;
  bool noise = false;  // mostly rounding noise: nothing to compare
};

// The tolerances that the golden set states.
Bounds BoundsOf(const GoldenCase& c) {
  const bool offset = c.id.find("/offset") != std::string::npos;
  const bool peaked = c.id.find("/peaked") != std::string::npos;
  if (c.inputs.at("logits").at("dtype") == "bfloat16" &&
      c.fn != "entropy_from_logits_with_chunking") {
    return {1e-2, 6e-2, offset || peaked};
  }
  return {1e-5, offset ? 1e-3 : 5e-5, false};
}

class LogitOps {
 public:
  explicit LogitOps(const GoldenTensor& logits)
      : logits_(logits.Floats()), vocab_(logits.shape.back()) {
    rows_ = static_cast<int64_t>(logits_.size()) / vocab_;
    auto forward = CreateCpuForwardOps(DType::kFloat32, std::make_shared<ThreadPool>(1));
    auto backward = CreateCpuBackwardOps(DType::kFloat32, std::make_shared<ThreadPool>(1));
    REQUIRE(forward.ok());
    REQUIRE(backward.ok());
    forward_ = *std::move(forward);
    backward_ = *std::move(backward);
    std::vector<float> identity(static_cast<size_t>(vocab_ * vocab_), 0.0f);
    for (int64_t i = 0; i < vocab_; ++i) identity[static_cast<size_t>(i * vocab_ + i)] = 1.0f;
    head_.resize(static_cast<size_t>(PackedBytes(vocab_, vocab_, DType::kFloat32)));
    PackRows(head_.data(), vocab_, DType::kFloat32, 0, vocab_, identity.data());
  }

  void Run(const std::vector<int32_t>& labels, float temperature) {
    labels_ = labels;
    temperatures_.assign(Size(rows_), temperature);
    log_probs.resize(Size(rows_));
    entropy.resize(Size(rows_));
    stats_.resize(Size(rows_));
    forward_->TokenLogProbs(Hidden(logits_), Head(), vocab_, labels_.data(), temperatures_.data(),
                            log_probs.data(), stats_.data());
    for (size_t i = 0; i < stats_.size(); ++i) entropy[i] = stats_[i].entropy;
  }
  // Of the rows that Run has just seen.
  std::vector<float> SumsOfSquares() {
    std::vector<RowStats> halves(stats_.size());
    std::vector<float> sums(stats_.size());
    forward_->TokenLogProbs(Hidden(logits_), Head(), vocab_, labels_.data(),
                            HalfTemperatures(temperatures_).data(), sums.data(), halves.data());
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = SumPiSquared(stats_[i], halves[i]);
    return sums;
  }
  // Gradient of sum(grad_log_probs * log_probs) + sum(grad_entropy * entropy) by the logits.
  std::vector<float> Gradient(const std::vector<float>& grad_log_probs,
                              const std::vector<float>& grad_entropy) {
    std::vector<float> gradient(logits_.size(), 0.0f), head_gradient(Size(vocab_ * vocab_), 0.0f);
    backward_->TokenLogProbs(Hidden(logits_), Head(), vocab_, labels_.data(), temperatures_.data(),
                             stats_.data(), grad_log_probs.data(), grad_entropy.data(),
                             Hidden(gradient), head_gradient.data());
    return gradient;
  }

  int64_t rows() const { return rows_; }
  std::vector<float> log_probs, entropy;

 private:
  static size_t Size(int64_t value) { return static_cast<size_t>(value); }
  Matrix Hidden(std::vector<float>& values) { return {values.data(), rows_, vocab_, vocab_}; }
  LinearWeight Head() const { return {head_.data(), vocab_, vocab_, nullptr}; }

  std::vector<float> logits_;
  int64_t vocab_, rows_ = 0;
  std::vector<std::byte> head_;
  std::vector<int32_t> labels_;
  std::vector<float> temperatures_;
  std::vector<RowStats> stats_;
  std::unique_ptr<ForwardOps> forward_;
  std::unique_ptr<BackwardOps> backward_;
};

std::vector<int32_t> Labels(const Json& inputs, int64_t rows) {
  if (!inputs.contains("labels")) return std::vector<int32_t>(static_cast<size_t>(rows), 0);
  const std::vector<int64_t> ids = ParseTensor(inputs.at("labels")).Ints();
  return {ids.begin(), ids.end()};
}

void Compare(const std::vector<float>& got, const Json& want, const Bounds& bounds) {
  if (bounds.noise) return;
  REQUIRE(CompareValues(got, ParseTensor(want).values, bounds.rtol, bounds.atol) == "");
}

enum class Quantity { kLogProb, kEntropy };

template <Quantity kQuantity>
void CheckQuantity(const GoldenFamily&, const GoldenCase& c) {
  LogitOps ops(ParseTensor(c.inputs.at("logits")));
  ops.Run(Labels(c.inputs, ops.rows()), c.options.value("temperature", 1.0f));
  const bool entropy = kQuantity == Quantity::kEntropy;
  Compare(entropy ? ops.entropy : ops.log_probs, c.outputs.at("value"), BoundsOf(c));
  if (!c.outputs.contains("grad_logits_of_weighted_sum")) return;
  const std::vector<float> weights = ParseTensor(c.inputs.at("weights")).Floats();
  const std::vector<float> zeros(weights.size(), 0.0f);
  Compare(entropy ? ops.Gradient(zeros, weights) : ops.Gradient(weights, zeros),
          c.outputs.at("grad_logits_of_weighted_sum"), BoundsOf(c));
}

void CheckSumPiSquared(const GoldenFamily&, const GoldenCase& c) {
  LogitOps ops(ParseTensor(c.inputs.at("logits")));
  ops.Run(Labels(c.inputs, ops.rows()), c.options.value("temperature", 1.0f));
  Compare(ops.SumsOfSquares(), c.outputs.at("value"), BoundsOf(c));
}

void CheckEntropyLoss(const GoldenFamily&, const GoldenCase& c) {
  const GoldenTensor mask = ParseTensor(c.inputs.at("response_mask"));
  LogitOps ops(ParseTensor(c.inputs.at("logits")));
  ops.Run(Labels(c.inputs, ops.rows()), 1.0f);
  LossScale scale;
  scale.mode = c.options.at("loss_agg_mode").get<std::string>();
  scale.horizon = static_cast<double>(mask.shape.at(1));
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < ops.rows(); ++i) rows.push_back(i / mask.shape.at(1));
  const auto loss = AggregateLoss(at::tensor(ops.entropy), at::tensor(mask.Floats()),
                                  at::tensor(rows), mask.shape.at(0), scale);
  REQUIRE(loss.ok());
  Compare({loss->item<float>()}, c.outputs.at("value"), BoundsOf(c));
}

TEST_CASE("Log-probs and entropies of logits equal the golden numbers", "[golden][ops]") {
  testing::RunGoldenFamily(
      testing::ReadGoldenFamily(testing::GoldenDirOrSkip(), "torch_functional"),
      {{"logprobs_from_logits", CheckQuantity<Quantity::kLogProb>},
       {"logprobs_from_logits_naive", CheckQuantity<Quantity::kLogProb>},
       {"entropy_from_logits", CheckQuantity<Quantity::kEntropy>},
       {"entropy_from_logits_with_chunking", CheckQuantity<Quantity::kEntropy>},
       {"sum_pi_squared_from_logits", CheckSumPiSquared},
       {"compute_entropy_loss", CheckEntropyLoss}});
}

}  // namespace
}  // namespace tandem
