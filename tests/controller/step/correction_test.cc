// The rollout correction of samples whose tokens several weight versions sampled.
#include "controller/step/correction.h"

#include <cmath>

#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

using Floats = std::vector<float>;

// A step that weights of version 7 began, with one sample of two versions and one of the step's.
struct MixedStep {
  MixedStep() {
    options.recompute_old_log_probs = true;
    batch.version = 7;
    REQUIRE(samples->BeginStep(3).ok());
    Put(1, {5, 6, 7, 7}, {-1.25f, -2.5f, -3.0f, -0.5f});
    Put(2, {7, 7}, {-1.0f, -2.0f});
    // What the trainers say under version 7: the same where that sampled.
    Recompute(1, {-1.0f, -3.0f, -3.0f, -0.5f});
    Recompute(2, {-1.0f, -2.0f});
  }

  void Put(uint64_t id, const std::vector<int64_t>& versions, const Floats& log_probs) {
    Sample sample{.sample_id = id, .prompt_tokens = 2};
    sample.tokens.assign(2 + versions.size(), 7);
    sample.versions = versions;
    sample.log_probs = log_probs;
    REQUIRE(samples->Put(sample, 7, TokenVersions::kUpTo).ok());
  }
  void Recompute(uint64_t id, const Floats& log_probs) {
    REQUIRE(samples->PutArray(3, TokenArray::kRecomputed, id, log_probs).ok());
  }
  absl::Status Correct() { return CorrectRollout(options, *samples, batch); }
  double Metric(const std::string& name) const { return batch.facts.trainer.at(name); }

  testing::FakeRun run{1};
  TrainOptions options;
  std::unique_ptr<SampleStore> samples = *SampleStore::Open(run.dir.path() / "mixed", 0);
  StepBatch batch{3, run.pool, run.progress, run.clock};
};

float Exp(double x) { return static_cast<float>(std::exp(x)); }

}  // namespace

TEST_CASE("R2: tokens of the step's weights have a weight of exactly 1, older ones their ratio",
          "[correction][partial]") {
  MixedStep step;
  step.options.correction = {.rollout_is = "token", .rollout_is_threshold = "2"};
  REQUIRE(step.Correct().ok());
  REQUIRE(step.samples->Read(1)->is_weights == Floats{Exp(0.25), Exp(-0.5), 1, 1});
  REQUIRE(step.samples->Read(2)->is_weights == Floats{1, 1});
  REQUIRE(step.Metric("rollout_corr/rollout_is_mean") ==
          Approx((std::exp(0.25) + std::exp(-0.5) + 4) / 6));
  REQUIRE(step.Metric("rollout_corr/kl") == Approx((-0.25 + 0.5) / 6));

  // Truncated; and a response's weight is one for all of its tokens.
  step.options.correction.rollout_is_threshold = "1.125";
  REQUIRE(step.Correct().ok());
  REQUIRE(step.samples->Read(1)->is_weights == Floats{1.125f, Exp(-0.5), 1, 1});
  step.options.correction.rollout_is = "sequence";
  REQUIRE(step.Correct().ok());
  const float whole = Exp(0.25 - 0.5);
  REQUIRE(step.samples->Read(1)->is_weights == Floats{whole, whole, whole, whole});
  REQUIRE(step.samples->Read(2)->is_weights == Floats{1, 1});
}

TEST_CASE("A step without a token to correct, or without a weight, is refused by name",
          "[correction]") {
  MixedStep step;
  step.options.correction = {.rollout_is = "token", .rollout_is_threshold = "5_6"};
  REQUIRE(step.Correct().message().find("step 3: rollout_is_threshold=5_6 makes every importance "
                                        "weight 0: none of the 6 tokens") == 0);
  REQUIRE(step.samples->PutArray(3, TokenArray::kMask, 1, {0, 0, 0, 0}).ok());
  REQUIRE(step.samples->PutArray(3, TokenArray::kMask, 2, {0, 0}).ok());
  const absl::Status refused = step.Correct();
  REQUIRE(absl::IsInvalidArgument(refused));
  REQUIRE(refused.message().find("there is no token to correct") != std::string::npos);
  step.options.correction = {};
  REQUIRE(step.Correct().ok());
}

TEST_CASE("Tokens of older weights may be rejected, those of the step's weights are not",
          "[correction][partial]") {
  MixedStep step;
  step.options.correction = {.rollout_rs = "token_k1", .rollout_rs_threshold = "0.7_1.5"};
  REQUIRE(step.Correct().ok());
  // rollout / trainers: e^-0.25 = 0.78 and e^0.5 = 1.65.
  REQUIRE(step.samples->Read(1)->mask == Floats{1, 0, 1, 1});
  REQUIRE(step.samples->Read(2)->mask == Floats{1, 1});
  REQUIRE(step.samples->Metas()[0].trained_tokens == 3);
}

TEST_CASE("Differences of probabilities are of the step's weights, those of older ones stand apart",
          "[correction][partial]") {
  MixedStep step;
  REQUIRE(step.Correct().ok());
  REQUIRE(step.Metric("training/rollout_probs_diff_valid") == 1);
  REQUIRE(step.Metric("training/rollout_probs_diff_max") == 0);
  REQUIRE(step.Metric("training/rollout_probs_diff_mean") == 0);
  const double first = std::exp(-1.0) - std::exp(-1.25), second = std::exp(-2.5) - std::exp(-3.0);
  REQUIRE(step.Metric("partial/stale_probs_diff_max") == Approx(first));
  REQUIRE(step.Metric("partial/stale_probs_diff_mean") == Approx((first + second) / 2));
  // rollout_corr/* stay over all, as in verl.
  REQUIRE(step.Metric("rollout_corr/kl") == Approx((-0.25 + 0.5) / 6));

  // A step that version 5 began has no older tokens.
  MixedStep fresh;
  fresh.batch.version = 5;
  REQUIRE(fresh.Correct().ok());
  REQUIRE(fresh.Metric("training/rollout_probs_diff_max") == Approx(first));
  REQUIRE_FALSE(fresh.batch.facts.trainer.contains("partial/stale_probs_diff_max"));
  // And one of version 8 no others: nothing was compared.
  MixedStep old;
  old.batch.version = 8;
  REQUIRE(old.Correct().ok());
  REQUIRE(old.Metric("training/rollout_probs_diff_valid") == 0);
  REQUIRE_FALSE(old.batch.facts.trainer.contains("training/rollout_probs_diff_max"));
  REQUIRE(old.Metric("partial/stale_probs_diff_mean") == Approx((first + second) / 6));
}

}  // namespace tandem
