#include <algorithm>

#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"

namespace tandem {

// Two prompts of four samples with two response tokens each; the mask takes one token of one
// sample.
TEST_CASE("Every optimizer step of a batch is told the denominators of its own mini-batch",
          "[train_loop]") {
  testing::FakeRun run(2);
  run.options.total_steps = 1;
  run.options.mini_batch_prompts = 1;
  run.options.epochs = 2;
  run.options.need_reference = true;
  run.journal.OnCall("trainer 0 ComputeLogProbs(step 1, reference", [&] {
    const uint64_t first = run.samples->Metas().front().sample_id;
    REQUIRE(run.samples->PutArray(1, TokenArray::kMask, first, {0.0f, 1.0f}).ok());
  });
  std::vector<ForwardBackwardCall> commands;
  run.on_forward_backward = [&](const ForwardBackwardCall& command, ForwardBackwardReply&) {
    commands.push_back(command);
  };
  REQUIRE(run.Run().ok());
  REQUIRE(commands.size() == 4);
  for (size_t i = 0; i < commands.size(); ++i) {
    REQUIRE(commands[i].mini_batch == static_cast<int64_t>(i % 2));
    REQUIRE(commands[i].mini_batches == 4);
    REQUIRE(commands[i].version == static_cast<int64_t>(i));
    REQUIRE(commands[i].global_samples == 4);
    REQUIRE(commands[i].global_tokens == (i % 2 == 0 ? 7 : 8));
    REQUIRE_FALSE(commands[i].compare_log_probs);
    REQUIRE(commands[i].log_probs_compared);
  }
}

// Two mini-batches of 8 tokens each.
TEST_CASE("All log-probs of a batch are compared before its first update", "[train_loop]") {
  for (const bool all : {true, false}) {
    testing::FakeRun run(2);
    run.options.total_steps = 1;
    run.options.mini_batch_prompts = 1;
    run.options.compare_all_log_probs = all;
    REQUIRE(run.Run().ok());
    const auto& metrics = run.store.steps.at(1).metrics;
    REQUIRE(metrics.at("training/rollout_log_probs_compared") == (all ? 16 : 8));
    REQUIRE(metrics.at("training/rollout_log_probs_identical") == 1);
    REQUIRE(run.journal.Count("trainer 1 ComputeLogProbs(step 1, compared)") == (all ? 1 : 0));
    const std::vector<std::string>& phases = run.progress.phases;
    REQUIRE(std::count(phases.begin(), phases.end(), "compare") == (all ? 1 : 0));
    REQUIRE(run.progress.comparisons.size() == 1);
    REQUIRE(run.progress.comparisons.front().compared == (all ? 16 : 8));
  }
}

TEST_CASE(
    "A batch of one mini-batch, or one whose log-probs are recomputed, has no pass to compare",
    "[train_loop]") {
  for (const bool recompute : {false, true}) {
    testing::FakeRun run(1);
    run.options.total_steps = 1;
    run.options.recompute_old_log_probs = recompute;
    run.options.mini_batch_prompts = recompute ? 1 : 2;
    run.options.compare_all_log_probs = !recompute;  // that pass is made anyway
    REQUIRE(run.Run().ok());
    REQUIRE(run.journal.Count("trainer 0 ComputeLogProbs(step 1, compared)") == 0);
    REQUIRE(run.store.steps.at(1).metrics.at("training/rollout_log_probs_compared") == 16);
    REQUIRE(run.progress.comparisons.size() == 1);
  }
}

TEST_CASE("A log-prob that differs in a later mini-batch stops the run before its first update",
          "[train_loop]") {
  testing::FakeRun run(1);
  run.options.mini_batch_prompts = 1;
  run.differing = 1;
  run.journal.OnCall("trainer 0 ComputeLogProbs(step 1, compared", [&] {
    for (const SampleMeta& meta : run.samples->Metas()) {
      if (meta.mini_batch == 1) {
        run.forward.comparison.mismatches = {{.sample_id = meta.sample_id, .position = 4}};
      }
    }
  });
  const absl::Status status = run.Run();
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(status.message().find("15 of 16 token log-probs identical") != std::string::npos);
  REQUIRE(status.message().find("tandemctl batch inspect") != std::string::npos);
  REQUIRE(run.journal.Count("trainer 0 ForwardBackward") == 0);
  REQUIRE(run.store.steps.empty());
}

TEST_CASE("Tokens that nobody compared stop the run, in a batch and in a mini-batch",
          "[train_loop]") {
  for (const int64_t prompts : {1, 2}) {
    testing::FakeRun run(2);
    run.options.mini_batch_prompts = prompts;
    run.comparable = [](int64_t, int64_t, int) { return 0; };
    const absl::Status status = run.Run();
    REQUIRE(absl::IsDataLoss(status));
    REQUIRE(status.message().find("compared 0 token log-probs with the rollouts', but weights of "
                                  "version 0 sampled 16 tokens") != std::string::npos);
    REQUIRE(run.journal.Count("trainer 0 OptimizerStep") == 0);
  }
}

}  // namespace tandem
