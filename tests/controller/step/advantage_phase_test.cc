#include <cmath>

#include <catch2/catch.hpp>

#include "controller/step/advantages.h"
#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

// A step whose samples are given one by one: prompt of two tokens, log-probs of -1.
class AdvantageStep {
 public:
  AdvantageStep() {
    options.gdpo_reward_keys = {"score", "format"};
    REQUIRE(samples_->BeginStep(3).ok());
  }

  // `tokens` in the response; samples of a group have neighbouring ids.
  uint64_t Add(int64_t group, int64_t index, int64_t tokens, double reward) {
    const uint64_t id =
        MakeSampleId(static_cast<uint64_t>(90 - group), 0, static_cast<uint64_t>(index));
    Sample sample{.sample_id = id, .group = group, .index = index, .prompt_tokens = 2};
    sample.tokens.assign(static_cast<size_t>(tokens) + 2, 7);
    sample.log_probs.assign(static_cast<size_t>(tokens), -1.0f);
    sample.versions.assign(static_cast<size_t>(tokens), 0);
    sample.segments = {{.begin = 0, .length = 2}, {.begin = 2, .length = tokens, .trained = true}};
    REQUIRE(samples_->Put(sample, 0).ok());
    batch.records[id] = {.sample_id = id,
                         .step = 3,
                         .group = group,
                         .index = index,
                         .reward = reward,
                         .response_tokens = tokens,
                         .reward_terms = {{"score", reward}, {"format", 1.0}}};
    return id;
  }

  void Put(TokenArray array, uint64_t id, const std::vector<float>& values) {
    REQUIRE(samples_->PutArray(3, array, id, values).ok());
  }
  absl::Status Run(const std::string& estimator) {
    options.adv_estimator = estimator;
    return ComputeAdvantages(options, kl_coef, *samples_, batch);
  }
  std::vector<float> Advantages(uint64_t id) const { return samples_->Read(id)->advantages; }
  bool PerToken(uint64_t id) const {
    return !samples_->ReadArray(TokenArray::kAdvantages, id)->empty();
  }
  double Metric(const std::string& name) const { return batch.facts.trainer.at(name); }

  TrainOptions options;
  double kl_coef = 0;

 private:
  testing::FakeRun run_{1};
  std::unique_ptr<SampleStore> samples_ = *SampleStore::Open(run_.dir.path() / "advantages", 0);

 public:
  StepBatch batch{3, run_.pool, run_.progress, run_.clock};
};

using Floats = std::vector<float>;

}  // namespace

TEST_CASE("advantages of scores go to the store as one number per sample", "[advantage_phase]") {
  AdvantageStep step;
  step.options.advantage.by_std = false;
  const uint64_t a = step.Add(0, 0, 2, 3), b = step.Add(0, 1, 4, 1);
  const uint64_t empty = step.Add(1, 0, 0, 5), c = step.Add(1, 1, 1, 1);
  REQUIRE(step.Run("grpo").ok());
  REQUIRE(step.Advantages(a) == Floats{1, 1});
  REQUIRE(step.Advantages(b) == Floats{-1, -1, -1, -1});
  REQUIRE(step.Advantages(empty).empty());
  REQUIRE(step.Advantages(c) == Floats{-2});
  REQUIRE(step.batch.records.at(empty).advantage == 2);
  REQUIRE_FALSE(step.PerToken(a));
  // Over tokens, as verl: 2 of 1, 4 of -1, 1 of -2.
  REQUIRE(step.Metric("critic/advantages/mean") == Approx(-4.0 / 7));
  REQUIRE(step.Metric("critic/advantages/max") == 1);
  REQUIRE(step.Metric("critic/advantages/min") == -2);
  REQUIRE(step.Metric("critic/returns/mean") == Approx(-4.0 / 7));
}

TEST_CASE("advantages that differ between tokens go there as arrays", "[advantage_phase]") {
  AdvantageStep step;
  step.options.advantage.gamma = 0.5;
  const uint64_t a = step.Add(0, 0, 3, 4), b = step.Add(0, 1, 1, 1);
  REQUIRE(step.Run("reinforce_plus_plus").ok());
  // Returns 1 2 4 and 1: mean 2, variance 2.
  const auto white = [](double x) { return static_cast<float>((x - 2) / std::sqrt(2 + 1e-8)); };
  REQUIRE(step.PerToken(a));
  REQUIRE(step.Advantages(a)[0] == Approx(white(1)));
  REQUIRE(step.Advantages(a)[1] == Approx(0).margin(1e-7));
  REQUIRE(step.Advantages(a)[2] == Approx(white(4)));
  REQUIRE_FALSE(step.PerToken(b));
  REQUIRE(step.Advantages(b)[0] == Approx(white(1)));
  REQUIRE(step.batch.records.at(a).advantage == Approx((white(1) + white(4)) / 3));
  REQUIRE(step.Metric("critic/returns/mean") == 2);
  REQUIRE(step.Metric("critic/returns/max") == 4);
  REQUIRE(step.Metric("critic/advantages/mean") == Approx(0).margin(1e-6));
}

TEST_CASE("without discount and penalty every token has the same advantage", "[advantage_phase]") {
  AdvantageStep step;
  const uint64_t a = step.Add(0, 0, 3, 4);
  step.Add(1, 0, 2, 1);
  REQUIRE(step.Run("reinforce_plus_plus").ok());
  REQUIRE_FALSE(step.PerToken(a));
  REQUIRE(step.Advantages(a)[0] == step.Advantages(a)[2]);
  REQUIRE(step.Advantages(a)[0] > 0);
}

TEST_CASE("each token pays its own KL, and the reward is the sum", "[advantage_phase]") {
  AdvantageStep step;
  step.options.kl_in_reward = true;
  step.kl_coef = 0.5;
  const uint64_t a = step.Add(0, 0, 2, 4), b = step.Add(0, 1, 1, 0);
  step.Put(TokenArray::kReference, a, {-2, -4});  // one nat and three
  step.Put(TokenArray::kReference, b, {-1});
  step.options.advantage.by_std = false;
  REQUIRE(step.Run("grpo").ok());
  REQUIRE(step.Advantages(a) == Floats{1, 1});           // 4 - 0.5 * 4 = 2 and 0
  REQUIRE(step.Metric("actor/reward_kl_penalty") == 1);  // verl's: mean over tokens, then samples
  REQUIRE(step.Metric("actor/reward_kl_penalty_coeff") == 0.5);
  // By tokens: -0.5 and 4 - 1.5, so 2 and 2.5 to come.
  step.batch.baseline_rewards[0] = 0.5;
  REQUIRE(step.Run("remax").ok());
  REQUIRE(step.Advantages(a) == Floats{1.5f, 2.0f});
  REQUIRE(step.Metric("critic/returns/max") == 2.5);
  // Under the log-probs that trainers recomputed, where there are any.
  step.Put(TokenArray::kRecomputed, a, {-2, -4});
  REQUIRE(step.Run("remax").ok());
  REQUIRE(step.Advantages(a) == Floats{3.5f, 3.5f});
}

TEST_CASE("masked tokens count nowhere, and the score moves to the last one that is left",
          "[advantage_phase]") {
  AdvantageStep step;
  step.batch.baseline_rewards = {{0, 1.0}};
  const uint64_t a = step.Add(0, 0, 3, 4), b = step.Add(0, 1, 2, 2);
  step.Put(TokenArray::kMask, a, {1, 1, 0});
  step.Put(TokenArray::kMask, b, {0, 0});
  REQUIRE(step.Run("remax").ok());
  REQUIRE(step.Advantages(a) == Floats{3, 3, 3});
  REQUIRE_FALSE(step.PerToken(a));
  REQUIRE(step.Metric("critic/advantages/mean") == 3);
  REQUIRE(step.Metric("critic/returns/max") == 4);
  REQUIRE(step.batch.records.at(b).reward == 2);
  // opo's lengths: two trained tokens and none.
  REQUIRE(step.Run("opo").ok());
  REQUIRE(step.Advantages(a)[0] == 0);
  REQUIRE(step.batch.records.at(b).advantage == -2);
}

// verl's opo gives such a group 0/0, which a mask of 0 does not take out of a loss.
TEST_CASE("opo's advantage of a group without trained tokens is 0 for its samples",
          "[advantage_phase]") {
  AdvantageStep step;
  const uint64_t a = step.Add(0, 0, 3, 4), b = step.Add(0, 1, 2, 2), c = step.Add(1, 0, 2, 1);
  step.Put(TokenArray::kMask, a, {0, 0, 0});
  step.Put(TokenArray::kMask, b, {0, 0});
  REQUIRE(step.Run("opo").ok());
  REQUIRE(step.Advantages(a) == Floats{0, 0, 0});
  REQUIRE(step.batch.records.at(b).advantage == 0);
  REQUIRE(step.Advantages(c) == Floats{1, 1});
}

namespace {

// Three samples of a prompt: one with a token rejected at its end, one whole, one rejected whole.
struct Rejected : AdvantageStep {
  const uint64_t cut = Add(0, 0, 3, 4), whole = Add(0, 1, 1, 1), gone = Add(0, 2, 2, 1);

  explicit Rejected(double score_of_gone = 1) {
    batch.records.at(gone).reward = batch.records.at(gone).reward_terms["score"] = score_of_gone;
    Put(TokenArray::kMask, cut, {1, 1, 0});
    Put(TokenArray::kMask, gone, {0, 0});
  }
};

}  // namespace

TEST_CASE("rloo compares with rejected samples, too", "[advantage_phase][correction]") {
  Rejected step;
  REQUIRE(step.Run("rloo").ok());
  REQUIRE(step.Advantages(step.cut) == Floats{3, 3, 3});  // 4 less the mean of 1 and 1
  REQUIRE(step.Advantages(step.whole) == Floats{-1.5f});  // 1 less that of 4 and 1
  // Over the tokens that are left.
  REQUIRE(step.Metric("critic/advantages/mean") == Approx((3 + 3 - 1.5) / 3));
}

TEST_CASE("reinforce_plus_plus whitens by the tokens that a rejection leaves",
          "[advantage_phase][correction]") {
  for (const double gone : {1.0, 90.0}) {
    Rejected step(gone);
    REQUIRE(step.Run("reinforce_plus_plus").ok());
    // Returns 4, 4 and 1: mean 3, variance 3. What is rejected whole has no part in it.
    REQUIRE(step.Advantages(step.cut)[0] == Approx(1 / std::sqrt(3.0)));
    REQUIRE(step.Advantages(step.cut)[1] == Approx(1 / std::sqrt(3.0)));
    REQUIRE(step.Advantages(step.whole)[0] == Approx(-2 / std::sqrt(3.0)));
    REQUIRE(step.Metric("critic/returns/max") == 4);
    REQUIRE(step.Metric("critic/returns/min") == 1);
  }
}

TEST_CASE("gdpo compares with rejected samples, and whitens by the tokens that are left",
          "[advantage_phase][correction]") {
  Rejected step;
  REQUIRE(step.Run("gdpo").ok());
  // 4, 1 and 1: 2 and -1 of sqrt(3), the format of all is 1; the three tokens that are left have
  // mean 1 / sqrt(3) and variance 1.
  REQUIRE(step.Advantages(step.cut)[0] == Approx(1 / std::sqrt(3.0)).epsilon(1e-5));
  REQUIRE(step.Advantages(step.whole)[0] == Approx(-2 / std::sqrt(3.0)).epsilon(1e-5));
}

TEST_CASE("token baselines read what trainers and the rollout correction have put",
          "[advantage_phase]") {
  AdvantageStep step;
  const uint64_t a = step.Add(0, 0, 1, 4), b = step.Add(0, 1, 1, 1);
  const auto missing = step.Run("optimal_token_baseline");
  REQUIRE(absl::IsInvalidArgument(missing));
  REQUIRE(std::string(missing.message()).find("sum_pi_squared") != std::string::npos);
  const auto pi = static_cast<float>(2 * std::exp(-1.0));
  step.Put(TokenArray::kSumPiSquared, a, {pi});  // W 1 each
  step.Put(TokenArray::kSumPiSquared, b, {pi});
  REQUIRE(step.Run("optimal_token_baseline").ok());
  REQUIRE(step.Advantages(a)[0] == Approx(1.5));
  step.Put(TokenArray::kIsWeights, b, {2});  // W 4
  REQUIRE(step.Run("optimal_token_baseline").ok());
  REQUIRE(step.Advantages(a)[0] == Approx(4 - 8.0 / 5));
  step.Put(TokenArray::kRecomputed, a, {-100});  // W 1 + pi
  REQUIRE(step.Run("optimal_token_baseline").ok());
  REQUIRE(step.Advantages(a)[0] == Approx(4 - (4 * (1 + pi) + 4) / (5 + pi)));
}

TEST_CASE("gdpo reads reward keys, and names those there are", "[advantage_phase]") {
  AdvantageStep step;
  const uint64_t a = step.Add(0, 0, 1, 4), b = step.Add(0, 1, 1, 1);
  REQUIRE(step.Run("gdpo").ok());
  REQUIRE(step.Advantages(a)[0] == Approx(std::sqrt(0.5)));
  step.batch.records.at(b).reward_terms["format"] = 7;
  step.options.advantage.component_weights = {1, 2};
  REQUIRE(step.Run("gdpo").ok());
  REQUIRE(step.Advantages(a)[0] == Approx(-std::sqrt(0.5)));
  step.batch.records.at(b).reward_terms.erase("format");
  step.batch.records.at(b).reward_terms["length"] = 0;
  const auto status = step.Run("gdpo");
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(status.message()).find("no key format") != std::string::npos);
  REQUIRE(std::string(status.message()).find("there are length, score") != std::string::npos);
}

TEST_CASE("remax asks for the greedy response of each prompt", "[advantage_phase]") {
  AdvantageStep step;
  step.Add(0, 0, 1, 4);
  step.Add(6, 0, 1, 4);
  step.batch.baseline_rewards = {{0, 1.0}};
  const auto status = step.Run("remax");
  REQUIRE(status.code() == absl::StatusCode::kInternal);
  REQUIRE(std::string(status.message()).find("prompt 6 has none") != std::string::npos);
}

TEST_CASE("the order in which samples arrive does not change a bit", "[advantage_phase]") {
  struct Arrival {
    int64_t group, index, tokens;
    double reward;
  };
  std::vector<Arrival> arrivals = {{0, 0, 3, 0.1}, {0, 1, 1, 0.7}, {0, 2, 4, 0.3},
                                   {1, 0, 2, 0.2}, {1, 1, 5, 0.9}, {2, 0, 1, 1.1}};
  const auto run = [&](const std::string& name) {
    AdvantageStep step;
    step.options.advantage.gamma = 0.9;
    std::map<uint64_t, double> result;
    for (const Arrival& a : arrivals) step.Add(a.group, a.index, a.tokens, a.reward);
    REQUIRE(step.Run(name).ok());
    for (const auto& [id, record] : step.batch.records) {
      double folded = record.advantage;
      for (const float advantage : step.Advantages(id)) folded = folded * 3 + advantage;
      result[id] = folded;
    }
    result[~0ull] = step.Metric("critic/advantages/mean");
    return result;
  };
  for (const std::string name : {"grpo", "reinforce_plus_plus", "reinforce_plus_plus_baseline",
                                 "opo", "gpg", "gdpo", "rloo"}) {
    std::sort(arrivals.begin(), arrivals.end(),
              [](const auto& x, const auto& y) { return x.reward < y.reward; });
    const auto first = run(name);
    std::reverse(arrivals.begin(), arrivals.end());
    REQUIRE(run(name) == first);
  }
}

TEST_CASE("an unknown estimator stops the step", "[advantage_phase]") {
  AdvantageStep step;
  step.Add(0, 0, 1, 4);
  REQUIRE(absl::IsInvalidArgument(step.Run("a2c")));
}

}  // namespace tandem
