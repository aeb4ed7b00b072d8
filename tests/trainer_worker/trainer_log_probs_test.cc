// Log-probs that trainers send and receive: of the probe, of other policies, and those that must be
// equal.
#include <cmath>

#include "tests/support/text.h"
#include "tests/trainer_worker/trainer_rig.h"
#include "trainer_worker/trainer.h"

namespace tandem {
namespace {

using namespace tandem::testing;

TEST_CASE("P7: each trainer scores the probe of its own rollout, one without any takes part",
          "[trainer]") {
  const std::vector<Sample> samples = RandomSamples(4, 3);
  TrainerRig whole(1);
  whole.GiveSamples(samples);
  whole.Reset(1);
  REQUIRE(whole[0].trainer->ComputeLogProbs(1, LogProbPolicy::kCurrent).ok());
  const LogProbsBySample expected = whole[0].samples.received.at("current");

  TrainerRig rig(3);
  rig.GiveSamples(RandomSamples(5, 4));  // the step's own: not touched
  rig[0].samples.probe = {samples[0], samples[1]};
  rig[2].samples.probe = {samples[2], samples[3]};
  rig.Reset(1);
  rig.RunOk([&](TrainerRig::Rank& rank, int) {
    return rank.trainer->ComputeLogProbs(1, LogProbPolicy::kProbe).status();
  });
  REQUIRE(rig[1].samples.received.at("probe").empty());
  for (const int rank : {0, 2}) {
    REQUIRE(rig[rank].samples.received.size() == 1);
    for (const auto& [id, values] : rig[rank].samples.received.at("probe")) {
      REQUIRE(values == expected.at(id));
    }
  }
}

// With advantages of 0 the KL term alone decides: at the reference its gradient vanishes.
TEST_CASE("Reference and recomputed log-probs enter the loss", "[trainer]") {
  TrainerOptions options;
  options.keep_reference = true;
  options.recompute_old_log_probs = true;
  options.loss.use_kl_loss = true;
  options.loss.kl_loss_coef = 1.0;
  TrainerRig rig(2, options);
  std::vector<Sample> samples = RandomSamples(4, 8);
  for (Sample& sample : samples) {
    sample.log_probs.clear();
    std::fill(sample.advantages.begin(), sample.advantages.end(), 0.0f);
  }
  rig.GiveSamples(samples);
  rig.Reset(1);
  rig.RunOk([&](TrainerRig::Rank& rank, int) -> absl::Status {
    for (const LogProbPolicy policy : {LogProbPolicy::kCurrent, LogProbPolicy::kReference}) {
      TANDEM_RETURN_IF_ERROR(rank.trainer->ComputeLogProbs(1, policy).status());
    }
    for (Sample& sample : rank.samples.samples) {
      sample.old_log_probs = rank.samples.received.at("current").at(sample.sample_id);
      sample.ref_log_probs = rank.samples.received.at("reference").at(sample.sample_id);
      if (sample.old_log_probs != sample.ref_log_probs) return Internal("policies differ");
    }
    TANDEM_ASSIGN_OR_RETURN(const auto result, rank.trainer->ForwardBackward(rig.TrainCommand(0)));
    if (result.batch.metrics.at("actor/kl_loss") != 0) return Internal("KL at the reference");
    TANDEM_ASSIGN_OR_RETURN(const auto step, rank.trainer->OptimizerStep(1));
    return step.step.grad_norm == 0 ? absl::OkStatus() : Internal("norm {}", step.step.grad_norm);
  });
  rig.Run([&](TrainerRig::Rank& rank, int) {
    for (Sample& sample : rank.samples.samples) sample.ref_log_probs.clear();
    return rank.trainer->ForwardBackward(rig.TrainCommand(1)).status();
  });
  REQUIRE(Says(rig[0].status, "ComputeLogProbs comes first"));
}

TEST_CASE("Sums of squared probabilities go with the current policy's log-probs", "[trainer]") {
  TrainerOptions options;
  options.sum_pi_squared = true;
  const std::vector<Sample> samples = RandomSamples(4, 8);
  TrainerRig whole(1, options);
  whole.GiveSamples(samples);
  whole.Reset(1);
  REQUIRE(whole[0].trainer->ComputeLogProbs(1, LogProbPolicy::kCurrent).ok());
  const auto& received = whole[0].samples.received;
  const LogProbsBySample sums = received.at("sum_pi_squared");
  REQUIRE(sums.size() == samples.size());
  for (const auto& [id, values] : sums) {
    const std::vector<float>& log_probs = received.at("current").at(id);
    REQUIRE(values.size() == log_probs.size());
    for (size_t i = 0; i < values.size(); ++i) {
      // At most 1, and more than the token's own part.
      REQUIRE(values[i] <= 1.0f);
      REQUIRE(values[i] > std::exp(2 * log_probs[i]));
    }
  }
  TrainerRig rig(2, options);
  rig.GiveSamples(samples);
  rig.Reset(1);
  rig.RunOk([&](TrainerRig::Rank& rank, int) {
    return rank.trainer->ComputeLogProbs(1, LogProbPolicy::kCurrent).status();
  });
  for (const int rank : {0, 1}) {
    for (const auto& [id, values] : rig[rank].samples.received.at("sum_pi_squared")) {
      REQUIRE(values == sums.at(id));
    }
  }
}

TEST_CASE("Log-probs of a training pass that must be others go to the controller", "[trainer]") {
  for (const bool allowed : {false, true}) {
    TrainerOptions options;
    options.tolerate_mismatch = allowed;
    TrainerRig rig(2, options);
    rig.Reset(1);
    std::vector<Sample> samples = RandomSamples(4, 12);
    rig.GiveSamples(samples);
    rig.RunOk([&](TrainerRig::Rank& rank, int) {
      return rank.trainer->ComputeLogProbs(1, LogProbPolicy::kCurrent).status();
    });
    // Rank 1 has what it samples right, one token of rank 0's is not.
    LogProbsBySample right;
    for (int rank = 0; rank < 2; ++rank) right.merge(rig[rank].samples.received.at("current"));
    for (Sample& sample : samples) sample.log_probs = right.at(sample.sample_id);
    samples[2].log_probs[0] -= 0.5f;
    rig.GiveSamples(samples);
    ForwardBackwardCommand command = rig.TrainCommand(0, true);
    command.first_update = true;
    rig.RunOk([&](TrainerRig::Rank& rank, int) {
      return rank.trainer->ForwardBackward(command).status();
    });
    REQUIRE(rig[0].samples.received.contains("training") != allowed);
    REQUIRE_FALSE(rig[1].samples.received.contains("training"));
    if (allowed) continue;
    const LogProbsBySample& training = rig[0].samples.received.at("training");
    REQUIRE(training.size() == 2);
    for (const auto& [id, values] : training) REQUIRE(values == right.at(id));
  }
}

}  // namespace
}  // namespace tandem
