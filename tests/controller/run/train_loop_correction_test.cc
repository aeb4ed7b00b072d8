// The rollout correction inside a step.
#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

#include "controller/run/train_loop.h"
#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

using Floats = std::vector<float>;
using Recomputed = std::function<Floats(const SampleMeta&)>;

// What rollouts say of every sample's two tokens.
const Floats kRolloutLogProbs{-1.0f, -2.0f};

// One step whose trainers recompute what `recomputed` says.
struct CorrectedRun {
  explicit CorrectedRun(Recomputed recomputed) : run(1) {
    run.options.total_steps = 1;
    run.options.recompute_old_log_probs = true;
    run.journal.OnCall("trainer 0 ComputeLogProbs(step 1, current", [this, recomputed] {
      for (const SampleMeta& meta : run.samples->Metas()) {
        REQUIRE(run.samples->PutArray(1, TokenArray::kRecomputed, meta.sample_id, recomputed(meta))
                    .ok());
      }
    });
  }
  double Metric(const std::string& name) const { return run.store.steps.at(1).metrics.at(name); }
  bool Has(const std::string& name) const { return run.store.steps.at(1).metrics.contains(name); }

  testing::FakeRun run;
};

Floats Same(const SampleMeta&) { return kRolloutLogProbs; }

// Odd samples' first token is e^0.5 times as probable for the trainers.
Floats OddDiffer(const SampleMeta& meta) {
  return {meta.sample_id % 2 == 1 ? -0.5f : -1.0f, -2.0f};
}

}  // namespace

TEST_CASE("With identical log-probs every weight is exactly 1 and nothing is rejected",
          "[train_loop][correction]") {
  for (const std::string level : {"token", "sequence"}) {
    for (const bool normalize : {false, true}) {
      CorrectedRun corrected(Same);
      corrected.run.options.correction = {.rollout_is = level,
                                          .rollout_is_batch_normalize = normalize,
                                          .rollout_rs = "token_k1,seq_max_k3",
                                          .rollout_rs_threshold = "1_1,1e-9"};
      REQUIRE(corrected.run.Run().ok());
      for (const SampleMeta& meta : corrected.run.samples->Metas()) {
        const Sample sample = *corrected.run.samples->Read(meta.sample_id);
        REQUIRE(sample.is_weights == Floats{1, 1});
        REQUIRE(sample.mask == Floats{1, 1});
        REQUIRE(meta.trained_tokens == 2);
      }
      REQUIRE(corrected.Metric("rollout_corr/rollout_is_mean") == 1.0);
      REQUIRE(corrected.Metric("rollout_corr/rollout_is_max") == 1.0);
      REQUIRE(corrected.Metric("rollout_corr/rollout_is_min") == 1.0);
      REQUIRE(corrected.Metric("rollout_corr/kl") == 0.0);
      REQUIRE(corrected.Metric("rollout_corr/rollout_rs_masked_fraction") == 0.0);
      REQUIRE(corrected.Metric("training/rollout_probs_diff_max") == 0.0);
      REQUIRE(corrected.Metric("training/rollout_actor_probs_pearson_corr") == Approx(1));
    }
  }
}

TEST_CASE("Differences are weighed and rejected, and do not end a run that asks for it",
          "[train_loop][correction]") {
  CorrectedRun corrected(OddDiffer);
  corrected.run.options.correction = {.rollout_is = "token",
                                      .rollout_is_threshold = "1.2",
                                      .rollout_rs = "seq_max_k2",
                                      .rollout_rs_threshold = "0.1"};
  corrected.run.differing = 4;
  REQUIRE(corrected.run.Run().ok());
  for (const SampleMeta& meta : corrected.run.samples->Metas()) {
    const Sample sample = *corrected.run.samples->Read(meta.sample_id);
    const bool odd = meta.sample_id % 2 == 1;
    REQUIRE(sample.is_weights == Floats{odd ? 1.2f : 1.0f, 1.0f});
    REQUIRE(sample.mask == (odd ? Floats{0, 0} : Floats{1, 1}));
    REQUIRE(meta.trained_tokens == (odd ? 0 : 2));
  }
  REQUIRE(corrected.Metric("rollout_corr/rollout_rs_masked_fraction") == 0.5);
  REQUIRE(corrected.Metric("rollout_corr/kl") == Approx(-0.125));
  REQUIRE(corrected.Metric("training/rollout_probs_diff_max") ==
          Approx(std::exp(-0.5) - std::exp(-1.0)));
  REQUIRE(corrected.Metric("training/rollout_log_probs_identical") == 0.75);
}

TEST_CASE("Without a correction recomputed log-probs are measured, and differences end the run",
          "[train_loop][correction]") {
  CorrectedRun measured(OddDiffer);
  REQUIRE(measured.run.Run().ok());
  REQUIRE(measured.Metric("rollout_corr/kl") == Approx(-0.125));
  REQUIRE_FALSE(measured.Has("rollout_corr/rollout_is_mean"));
  const Sample sample =
      *measured.run.samples->Read(measured.run.samples->Metas().front().sample_id);
  REQUIRE(sample.is_weights.empty());
  REQUIRE(sample.mask.empty());

  CorrectedRun stopped(OddDiffer);
  stopped.run.differing = 4;
  const absl::Status differs = stopped.run.Run();
  INFO(differs.ToString());
  REQUIRE(absl::IsDataLoss(differs));
  for (const char* part :
       {"12 of", "tandemctl batch inspect", "tandemctl parity", "TANDEM_CPU_ISA"}) {
    REQUIRE(differs.message().find(part) != std::string::npos);
  }
}

TEST_CASE("A mini-batch of rejected tokens alone is left out, with its update",
          "[train_loop][correction]") {
  CorrectedRun corrected([](const SampleMeta& meta) {
    return meta.group == 0 ? Floats{-9.0f, -9.0f} : kRolloutLogProbs;
  });
  corrected.run.options.mini_batch_prompts = 1;
  corrected.run.options.epochs = 2;
  corrected.run.options.correction = {.rollout_rs = "token_k3", .rollout_rs_threshold = "1"};
  REQUIRE(corrected.run.Run().ok());
  REQUIRE(corrected.run.journal.Count("trainer 0 ForwardBackward(step 1, mini 0") == 0);
  REQUIRE(corrected.run.journal.Count("trainer 0 ForwardBackward(step 1, mini 1 of 2, v0, fresh") ==
          1);
  REQUIRE(corrected.run.journal.Count("trainer 0 OptimizerStep(v2)") == 1);
  REQUIRE(corrected.run.journal.Count("trainer 0 OptimizerStep(v3)") == 0);
  REQUIRE(corrected.run.store.steps.at(1).version == 2);
  REQUIRE(corrected.Metric("actor/skipped_updates") == 2.0);
  REQUIRE(corrected.Metric("actor/grad_norm") == 0.5);
  const std::vector<std::string>& messages = corrected.run.progress.messages;
  REQUIRE(std::any_of(messages.begin(), messages.end(), [](const std::string& message) {
    return message.find("no token of 2 mini-batches is trained") != std::string::npos;
  }));
}

TEST_CASE("A step whose every token is rejected ends the run and names the threshold",
          "[train_loop][correction]") {
  CorrectedRun corrected([](const SampleMeta&) { return Floats{-9.0f, -9.0f}; });
  corrected.run.options.correction = {.rollout_rs = "token_k3", .rollout_rs_threshold = "1"};
  const absl::Status status = corrected.run.Run();
  REQUIRE(absl::IsInvalidArgument(status));  // which no recovery tries to mend
  REQUIRE(corrected.run.journal.Count("trainer 0 Reset") == 1);
  REQUIRE(
      status.message().find("rollout_rs=token_k3 with rollout_rs_threshold=1 rejected all 16") !=
      std::string::npos);
  REQUIRE(corrected.run.journal.Count("trainer 0 OptimizerStep") == 0);
}

namespace {

// A run in bypass mode whose trainers reject every token of the mini-batches that `rejects` names.
struct BypassRun {
  explicit BypassRun(std::function<bool(const ForwardBackwardCall&)> rejects) : run(1) {
    run.options.total_steps = 1;
    run.options.mini_batch_prompts = 1;  // of two
    run.options.correction = {.rollout_rs = "token_k3", .rollout_rs_threshold = "1"};
    run.on_forward_backward = [rejects](const ForwardBackwardCall& command,
                                        ForwardBackwardReply& result) {
      const bool all = rejects(command);
      result.metrics = {{"actor/loss", 0.5},
                        {"rollout_corr/k3_kl", 2.5},
                        {"rollout_corr/rollout_rs_masked_fraction", all ? 1.0 : 0.5}};
      if (!all) result.metrics["actor/ratio_mean"] = 1.25;
    };
  }
  bool Told(const std::string& text) const {
    return std::any_of(run.progress.messages.begin(), run.progress.messages.end(),
                       [&](const std::string& m) { return m.find(text) != std::string::npos; });
  }

  testing::FakeRun run;
};

}  // namespace

TEST_CASE("Bypass mode's updates without a kept token are counted and told of, and not averaged in",
          "[train_loop][correction]") {
  BypassRun bypass([](const ForwardBackwardCall& command) { return command.mini_batch == 1; });
  bypass.run.options.epochs = 2;
  REQUIRE(bypass.run.Run().ok());
  const auto& metrics = bypass.run.store.steps.at(1).metrics;
  REQUIRE(metrics.at("actor/rejected_updates") == 2.0);
  REQUIRE(metrics.at("actor/ratio_mean") == 1.25);
  REQUIRE(metrics.at("actor/loss") == 0.5);
  REQUIRE(metrics.at("rollout_corr/rollout_rs_masked_fraction") == 0.75);
  REQUIRE(bypass.Told("rejected every token of 2 of 4 updates"));
  REQUIRE(bypass.run.journal.Count("trainer 0 OptimizerStep") == 4);

  BypassRun none([](const ForwardBackwardCall&) { return false; });
  REQUIRE(none.run.Run().ok());
  REQUIRE_FALSE(none.run.store.steps.at(1).metrics.contains("actor/rejected_updates"));
  REQUIRE_FALSE(none.Told("rejected"));
}

TEST_CASE("A step whose every mini-batch bypass mode rejects ends the run before its last update",
          "[train_loop][correction]") {
  for (const int64_t prompts : {2, 1}) {
    BypassRun bypass([](const ForwardBackwardCall&) { return true; });
    bypass.run.options.mini_batch_prompts = prompts;
    const absl::Status status = bypass.run.Run();
    REQUIRE(absl::IsInvalidArgument(status));  // which no recovery tries to mend
    REQUIRE(bypass.run.journal.Count("trainer 0 Reset") == 1);
    REQUIRE(status.message().find(
                "rollout_rs=token_k3 with rollout_rs_threshold=1 rejected every token of all " +
                std::to_string(2 / prompts) + " mini-batches") != std::string::npos);
    REQUIRE(bypass.run.journal.Count("trainer 0 OptimizerStep") == 2 / prompts - 1);
    REQUIRE(bypass.run.store.steps.empty());
  }
}

TEST_CASE("The trainers' comparison gives the probabilities' differences where none is recomputed",
          "[train_loop][correction]") {
  testing::FakeRun run(2);
  run.options.total_steps = 1;
  for (const float x : {-1.0f, -2.0f}) run.forward.comparison.probabilities.Add(x, x);
  REQUIRE(run.Run().ok());
  const auto& metrics = run.store.steps.at(1).metrics;
  REQUIRE(metrics.at("training/rollout_probs_diff_valid") == 1.0);
  REQUIRE(metrics.at("training/rollout_probs_diff_max") == 0.0);
  REQUIRE(metrics.at("training/rollout_probs_diff_std") == 0.0);
  REQUIRE(metrics.at("training/rollout_actor_probs_pearson_corr") == Approx(1));
  REQUIRE_FALSE(metrics.contains("rollout_corr/kl"));
}

}  // namespace tandem
