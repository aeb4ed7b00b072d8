#include "controller/run/train_loop.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::IndexOf;
using Lines = std::vector<std::string>;

// Calls to one worker alone, in order.
Lines Of(const Lines& lines, const std::string& who) {
  Lines result;
  for (const std::string& line : lines) {
    if (line.rfind(who + " ", 0) == 0) result.push_back(line.substr(who.size() + 1));
  }
  return result;
}

}  // namespace

TEST_CASE("TrainLoop makes the calls of a step in the order of the design", "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  run.options.sleep = SleepMode::kLevel1;
  REQUIRE(run.Run().ok());
  REQUIRE(run.journal.Take() ==
          Lines{"trainer 0 Reset(, v0)", "rollout 0 AbortUpdate()", "rollout 0 Wake(weights)",
                "trainer 0 SyncWeights(v0, targets 0, r0i1)", "trainer 0 CheckWeights(/model)",
                "rollout 0 Wake(kv_cache)", "rollout 0 Generate(group 0, 4 samples, v0)",
                "rollout 0 Generate(group 1, 4 samples, v0)", "rollout 0 Sleep(level)",
                "trainer 0 ForwardBackward(step 1, mini 0 of 1, v0, compare)",
                "trainer 0 OptimizerStep(v1)", "rollout 0 Wake(weights)",
                "trainer 0 SyncWeights(v1, targets 0, r0i1)", "rollout 0 Wake(kv_cache)",
                "trainer 0 SaveState(v1)"});
  REQUIRE(run.progress.phases == std::vector<std::string>{"generate", "score", "sleep", "advantage",
                                                          "train", "optimize", "sync", "wake",
                                                          "record", "save"});
  const StepRecord& record = run.store.steps.at(1);
  REQUIRE(record.version == 1);
  REQUIRE(record.metrics.at("critic/rewards/mean") == 0.5);
  REQUIRE(record.metrics.at("reward/right/mean") == 0.5);
  REQUIRE(record.metrics.at("actor/grad_norm") == 0.5);
  REQUIRE(record.metrics.at("training/rollout_log_probs_identical") == 1.0);
  // Rewards 0 1 0 1: mean 1/2, standard deviation sqrt(1/3).
  REQUIRE(run.store.Advantages(1)[1] == Approx(0.5 / std::sqrt(1.0 / 3)).epsilon(1e-5));
}

TEST_CASE("A step is shown as made while its checkpoint is being saved", "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  int64_t shown = -1;  // by the last write, of the checkpoint's time
  run.store.on_write = [&] {
    shown = run.control->snapshot().made_steps;
    return absl::OkStatus();
  };
  REQUIRE(run.Run().ok());
  REQUIRE(run.progress.phases.back() == "save");
  REQUIRE(shown == 1);
}

TEST_CASE("A step whose checkpoint failed counts as lost, not as made, while the run recovers",
          "[train_loop]") {
  testing::FakeRun run(1);
  run.options.save_freq = 1;
  run.DieAt({WorkerRole::kTrainer, 0}, "SaveState", 1);
  std::vector<RunControl::Snapshot> at_load;
  run.journal.OnCall("trainer 0 Reset(", [&] { at_load.push_back(run.control->snapshot()); });
  std::vector<int64_t> lost;  // at each call of step 2, before and after the recovery
  run.on_forward_backward = [&](const ForwardBackwardCall& call, ForwardBackwardReply&) {
    if (call.step == 2) lost.push_back(run.control->snapshot().last_lost_step);
  };
  REQUIRE(run.Run().ok());
  REQUIRE(run.budget.spent() == 1);
  REQUIRE(at_load.size() == 2);
  REQUIRE(at_load.back().made_steps == 1);
  REQUIRE(at_load.back().version == 1);
  REQUIRE(lost == std::vector<int64_t>{0, 2});
  REQUIRE(run.control->snapshot().last_lost_step == 0);
}

TEST_CASE("TrainLoop advances the version with every mini-batch, compares before the first",
          "[train_loop]") {
  testing::FakeRun run(2);
  run.options.total_steps = 1;
  run.options.mini_batch_prompts = 1;
  run.options.epochs = 2;
  run.options.need_reference = true;
  REQUIRE(run.Run().ok());
  const Lines trainer = Of(run.journal.Take(), "trainer 1");
  REQUIRE(trainer == Lines{"Reset(, v0)", "SyncWeights(v0, targets 0+1, r1i1)",
                           "CheckWeights(/model)", "ComputeLogProbs(step 1, reference)",
                           "ComputeLogProbs(step 1, compared)",
                           "ForwardBackward(step 1, mini 0 of 4, v0, fresh)", "OptimizerStep(v1)",
                           "ForwardBackward(step 1, mini 1 of 4, v1)", "OptimizerStep(v2)",
                           "ForwardBackward(step 1, mini 0 of 4, v2)", "OptimizerStep(v3)",
                           "ForwardBackward(step 1, mini 1 of 4, v3)", "OptimizerStep(v4)",
                           "SyncWeights(v4, targets 0+1, r1i1)", "SaveState(v4)"});
}

TEST_CASE("TrainLoop calls a step's first mini-batch fresh, compared or not", "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  run.options.mini_batch_prompts = 1;
  run.options.recompute_old_log_probs = true;
  run.options.compare_log_probs = false;
  REQUIRE(run.Run().ok());
  const Lines trainer = Of(run.journal.Take(), "trainer 0");
  IndexOf(trainer, "ForwardBackward(step 1, mini 0 of 2, v0, fresh)");
  IndexOf(trainer, "ForwardBackward(step 1, mini 1 of 2, v1)");
}

TEST_CASE("A KL penalty lowers the reward and not the score", "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  run.options.need_reference = true;
  run.options.kl_in_reward = true;
  run.options.kl_coef = 0.25;
  // Half a nat below the policy on both tokens of every sample.
  run.journal.OnCall("trainer 0 ComputeLogProbs(step 1, reference", [&] {
    for (const SampleMeta& meta : run.samples->Metas()) {
      REQUIRE(
          run.samples->PutArray(1, TokenArray::kReference, meta.sample_id, {-1.5f, -2.5f}).ok());
    }
  });
  REQUIRE(run.Run().ok());
  const auto& metrics = run.store.steps.at(1).metrics;
  REQUIRE(metrics.at("critic/score/mean") == 0.5);
  REQUIRE(metrics.at("critic/rewards/mean") == 0.25);
  REQUIRE(metrics.at("critic/rewards/max") == 0.75);
}

TEST_CASE("TrainLoop stops when a log-prob differs and says which", "[train_loop]") {
  testing::FakeRun run(1);
  run.differing = 2;
  run.forward.comparison.max_abs_difference = 0.25;
  run.forward.comparison.sum_abs_difference = 0.5;
  for (int64_t i = 0; i < 7; ++i) {
    run.forward.comparison.mismatches.push_back(
        {.sample_id = 0xabc, .position = i, .weight_version = 0, .rollout = -1, .trainer = -2});
  }
  const absl::Status status = run.Run();
  REQUIRE(absl::IsDataLoss(status));
  const std::string message(status.message());
  REQUIRE(message.find("14 of 16") != std::string::npos);
  REQUIRE(message.find("sample 0xabc, position 4, weight version 0: rollout -1, trainer -2") !=
          std::string::npos);
  REQUIRE(message.find("position 5") == std::string::npos);
  REQUIRE(run.journal.Count("trainer 0 OptimizerStep") == 0);
  REQUIRE(run.store.steps.empty());
}

TEST_CASE("A rollout lost while generating: others finish, it comes back by a sync of its own",
          "[train_loop][recovery]") {
  testing::FakeRun undisturbed(2);
  REQUIRE(undisturbed.Run().ok());
  testing::FakeRun run(2);
  run.DieAt({WorkerRole::kRollout, 1}, "Generate");
  REQUIRE(run.Run().ok());
  const Lines lines = run.journal.Take();
  const size_t resync = IndexOf(lines, "trainer 1 SyncWeights(v0, targets 1, r1i2)");
  REQUIRE(resync < IndexOf(lines, "trainer 0 ForwardBackward(step 1, mini 0 of 1, v0, compare)"));
  REQUIRE(run.journal.Count("trainer 0 Reset") == 0);  // taken above: none since
  REQUIRE(std::count(lines.begin(), lines.end(), "trainer 0 Reset(, v0)") == 1);
  for (int64_t step = 1; step <= 2; ++step) {
    REQUIRE(run.store.samples.at(step).size() == 8);
    REQUIRE(run.store.Advantages(step) == undisturbed.store.Advantages(step));
  }
  REQUIRE(run.budget.spent() == 1);
}

TEST_CASE("The only rollout is lost while generating: its successor generates the rest",
          "[train_loop][recovery]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  run.DieAt({WorkerRole::kRollout, 0}, "Generate", 1);
  REQUIRE(run.Run().ok());
  const Lines lines = run.journal.Take();
  const size_t resync = IndexOf(lines, "trainer 0 SyncWeights(v0, targets 0, r0i2)");
  // One sample of group 1 had come: three are asked for again.
  REQUIRE(IndexOf(lines, "rollout 0 Generate(group 1, 3 samples, v0)") > resync);
  REQUIRE(run.store.samples.at(1).size() == 8);
}

TEST_CASE("A rollout lost in sleep or in the sync is restarted and synced",
          "[train_loop][recovery]") {
  for (const std::string method : {"Sleep", "Wake"}) {
    testing::FakeRun run(2);
    run.options.total_steps = 1;
    run.DieAt({WorkerRole::kRollout, 1}, method, method == "Wake" ? 2 : 0);
    REQUIRE(run.Run().ok());
    const Lines lines = run.journal.Take();
    IndexOf(lines, method == "Wake" ? "trainer 1 SyncWeights(v1, targets 0+1, r1i2)"
                                    : "trainer 1 SyncWeights(v0, targets 1, r1i2)");
    REQUIRE(std::count(lines.begin(), lines.end(), "trainer 1 Reset(, v0)") == 1);
    REQUIRE(run.store.steps.size() == 1);
  }
}

TEST_CASE("A trainer lost while training: all reload the checkpoint and the step is made again",
          "[train_loop][recovery]") {
  testing::FakeRun run(2);
  run.options.total_steps = 3;
  run.options.save_freq = 1;
  run.DieAt({WorkerRole::kTrainer, 1}, "ForwardBackward", 1);  // in step 2
  REQUIRE(run.Run().ok());
  const Lines lines = run.journal.Take();
  const size_t reset = IndexOf(lines, "trainer 0 Reset(step_1, v1)");
  IndexOf(lines, "trainer 1 Reset(step_1, v1)");
  IndexOf(lines, "trainer 0 SyncWeights(v1, targets 0+1, r0i1)", reset);
  IndexOf(lines, "trainer 0 ForwardBackward(step 2, mini 0 of 1, v1, compare)", reset);
  REQUIRE(run.store.steps.size() == 3);
  REQUIRE(run.store.steps.at(3).version == 3);
  // The replayed step has the prompts it had: rows 2 and 3.
  REQUIRE(run.store.samples.at(2).front().sample_id == MakeSampleId(2, 0, 0));
  REQUIRE(run.store.samples.at(3).front().sample_id == MakeSampleId(4, 0, 0));
}

TEST_CASE("Every trainer of several hosts is told where all are, and their secret",
          "[train_loop][recovery]") {
  testing::FakeRun run(
      Topology{.trainers = 2, .rollouts = 2, .trainer_hosts = 2, .rollout_hosts = 2});
  run.options.total_steps = 1;
  std::map<int, std::vector<ResetCall>> resets;  // by rank
  run.on_reset = [&resets](int rank, const ResetCall& call) { resets[rank].push_back(call); };
  run.DieAt({WorkerRole::kTrainer, 1}, "ForwardBackward");
  REQUIRE(run.Run().ok());
  REQUIRE(resets.at(0).size() == 2);
  REQUIRE(resets.at(1).size() == 2);
  for (size_t time = 0; time < 2; ++time) {
    const ResetCall& call = resets[0][time];
    REQUIRE(call.members.size() == 2);
    for (size_t rank = 0; rank < 2; ++rank) {
      const std::string node = "node" + std::to_string(rank);
      REQUIRE(call.members[rank].host == HostId{.boot_id = "host", .node = node});
      REQUIRE(call.members[rank].data_address == node + ":1");
    }
    REQUIRE(call.members == resets[1][time].members);
    REQUIRE(call.group_ticket.size() == 64);
    REQUIRE(call.group_ticket == resets[1][time].group_ticket);
  }
  // The one that was replaced, and its successor.
  REQUIRE(resets[0][0].members[1].incarnation == 1);
  REQUIRE(resets[0][1].members[1].incarnation == 2);
  const OverTcp over_tcp = OverTcpByHost(run.registry, /*always=*/false);
  REQUIRE_FALSE(over_tcp({.trainer = 1, .rollout = 1}));
  REQUIRE(over_tcp({.trainer = 0, .rollout = 1}));
}

TEST_CASE("A trainer lost before the first checkpoint: the run begins again from the model",
          "[train_loop][recovery]") {
  testing::FakeRun run(1);
  run.DieAt({WorkerRole::kTrainer, 0}, "OptimizerStep", 1);
  REQUIRE(run.Run().ok());
  const Lines lines = run.journal.Take();
  REQUIRE(std::count(lines.begin(), lines.end(), "trainer 0 Reset(, v0)") == 2);
  REQUIRE(run.store.steps.size() == 2);
  REQUIRE(run.store.samples.at(1).front().sample_id == MakeSampleId(0, 0, 0));
}

TEST_CASE("Past cluster.max_restarts the run ends with the last error", "[train_loop][recovery]") {
  testing::FakeRun run(1, /*max_restarts=*/0);
  run.DieAt({WorkerRole::kTrainer, 0}, "ForwardBackward");
  const absl::Status status = run.Run();
  REQUIRE(absl::IsInternal(status));
  REQUIRE(std::string(status.message()).find("cluster.max_restarts") != std::string::npos);
  REQUIRE(std::string(status.message()).find("trainer 0: connection lost") != std::string::npos);
}

TEST_CASE("One death that shows up in several calls is one recovery", "[train_loop][recovery]") {
  testing::FakeRun run(2, /*max_restarts=*/1);
  run.options.total_steps = 1;
  // The trainer says that its rollout is gone, then the rollout itself does not answer.
  run.journal.FailNext("trainer 1", "SyncWeights", absl::UnavailableError("rollout 1 is gone"), 1);
  run.DieAt({WorkerRole::kRollout, 1}, "Wake", 3);
  REQUIRE(run.Run().ok());
  REQUIRE(run.budget.spent() == 1);
  const Lines lines = run.journal.Take();
  REQUIRE(std::count(lines.begin(), lines.end(), "trainer 1 Reset(, v0)") == 1);
  IndexOf(lines, "trainer 1 SyncWeights(v1, targets 0+1, r1i2)");
}

TEST_CASE("A digest that differs once is published again, twice ends the run", "[train_loop]") {
  testing::FakeRun once(1);
  once.journal.FailNext("trainer 0", "SyncWeights", absl::DataLossError("digest of x"), 1);
  REQUIRE(once.Run().ok());
  testing::FakeRun twice(1);
  twice.journal.FailNext("trainer 0", "SyncWeights", absl::DataLossError("digest of x"), 1, 2);
  const absl::Status status = twice.Run();
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(std::string(status.message()).find("trainer 0: digest of x") != std::string::npos);
  // What the trainers have learnt is kept.
  REQUIRE(CheckpointIndex::ReadState(twice.loop->newest_checkpoint())->step == 1);
  REQUIRE(twice.store.steps.contains(1));
}

TEST_CASE("A stop drops the step under way as long as the weights are the old ones",
          "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 3;
  run.Prepare(StartMode::kTrain);
  run.journal.OnCall("trainer 0 ForwardBackward(step 2", [&] { run.control->StopNow(); });
  REQUIRE(run.loop->Run("").ok());
  REQUIRE(run.journal.Count("trainer 0 OptimizerStep") == 1);
  const auto saved = CheckpointIndex::ReadState(run.loop->newest_checkpoint());
  REQUIRE(saved->step == 1);
  REQUIRE(saved->version == 1);
  REQUIRE(saved->data.row == 2);

  testing::FakeRun later(1);
  later.options.total_steps = 3;
  later.Prepare(StartMode::kTrain);
  later.journal.OnCall("trainer 0 OptimizerStep(v2)", [&] { later.control->StopNow(); });
  REQUIRE(later.loop->Run("").ok());
  REQUIRE(CheckpointIndex::ReadState(later.loop->newest_checkpoint())->step == 2);
}

TEST_CASE("A run resumed from a checkpoint goes on where it was", "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  REQUIRE(run.Run().ok());
  run.journal.Take();
  run.options.total_steps = 2;
  const std::string checkpoint = run.loop->newest_checkpoint();
  REQUIRE(run.Run(checkpoint).ok());
  const Lines lines = run.journal.Take();
  REQUIRE(lines.front() == "trainer 0 Reset(step_1, v1)");
  IndexOf(lines, "trainer 0 ForwardBackward(step 2, mini 0 of 1, v1, compare)");
  REQUIRE(run.store.samples.at(2).front().sample_id == MakeSampleId(2, 0, 0));
  REQUIRE(run.loop->position().finished_steps == 2);
}

TEST_CASE("A disk that is full at a checkpoint does not end the run before its end",
          "[train_loop]") {
  testing::FakeRun run(1);
  run.options.save_freq = 1;
  run.journal.FailNext("trainer 0", "SaveState", absl::ResourceExhaustedError("disk full"));
  REQUIRE(run.Run().ok());
  REQUIRE(run.checkpoints->List().size() == 1);
  const auto& messages = run.progress.messages;
  REQUIRE(std::any_of(messages.begin(), messages.end(), [](const std::string& text) {
    return text.find("disk full") != std::string::npos;
  }));

  testing::FakeRun last(1);
  last.options.total_steps = 1;
  last.journal.FailNext("trainer 0", "SaveState", absl::ResourceExhaustedError("disk full"));
  REQUIRE_FALSE(last.Run().ok());
}

TEST_CASE("Validation runs before, every test_freq steps and at the end", "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 3;
  run.options.val_before_train = true;
  run.options.test_freq = 2;
  run.options.validation_samples = 2;
  run.validation = {{.data_row = 0, .tokens = {5}, .data_source = "fake"}};
  REQUIRE(run.Run().ok());
  REQUIRE(run.store.evaluations.size() == 3);
  REQUIRE(run.store.evaluations[0].step == 0);
  REQUIRE(run.store.evaluations[1].step == 2);
  REQUIRE(run.store.evaluations[2].step == 3);
  const auto& metrics = run.store.evaluations[2].metrics;
  REQUIRE(metrics.at("val-core/fake/reward/mean@2") == 0.5);
  // Three of four resamples of two hold the right one of the two.
  REQUIRE(metrics.at("val-core/fake/reward/best@2/mean") == Approx(0.75).margin(0.07));
  REQUIRE(metrics.at("val-core/fake/reward/pass@2") == 1.0);
  REQUIRE(metrics.at("val-aux/fake/right/mean@2") == 0.5);
  REQUIRE(metrics.at("val/reward/mean") == 0.5);
  REQUIRE(run.loop->complete());
}

TEST_CASE("A run that died between its last checkpoint and its validation makes up for it",
          "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 2;
  run.validation = {{.data_row = 0, .tokens = {5}, .data_source = "fake"}};
  REQUIRE(run.Run().ok());
  const std::string checkpoint = run.loop->newest_checkpoint();
  run.store.evaluations.clear();
  run.journal.Take();
  REQUIRE(run.Run(checkpoint).ok());
  REQUIRE(run.journal.Count("trainer 0 OptimizerStep") == 0);
  REQUIRE(run.journal.Count("trainer 0 SaveState") == 0);
  REQUIRE(run.store.evaluations.size() == 1);
  REQUIRE(run.store.evaluations[0].step == 2);
  REQUIRE(run.loop->complete());
  REQUIRE(run.store.steps.size() == 2);
  // What is recorded already is not done again.
  run.journal.Take();
  REQUIRE(run.Run(checkpoint).ok());
  REQUIRE(run.journal.Count("rollout 0 Generate") == 0);
  REQUIRE(run.loop->complete());
}

TEST_CASE("A worker lost in the last validation does not cost it", "[train_loop][recovery]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  run.options.validation_samples = 2;
  run.validation = {{.data_row = 0, .tokens = {5}, .data_source = "fake"}};
  run.DieAt({WorkerRole::kRollout, 0}, "Generate", 2);     // two groups of training before
  run.DieAt({WorkerRole::kTrainer, 0}, "SyncWeights", 2);  // at the start, after the step, now
  REQUIRE(run.Run().ok());
  const Lines lines = run.journal.Take();
  IndexOf(lines, "trainer 0 Reset(step_1, v1)");
  REQUIRE(run.store.evaluations.size() == 1);
  REQUIRE(run.loop->complete());
}

TEST_CASE("A stop in the last validation leaves the run incomplete", "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  run.validation = {{.data_row = 0, .tokens = {5}, .data_source = "fake"}};
  run.Prepare(StartMode::kTrain);
  run.journal.OnCall("trainer 0 SaveState", [&] { run.control->StopNow(); });
  REQUIRE(run.loop->Run("").ok());
  REQUIRE(run.store.evaluations.empty());
  REQUIRE_FALSE(run.loop->complete());
}

TEST_CASE("A replayed step is tracked once, and a run from the model tracks from nothing",
          "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 3;
  run.options.save_freq = 2;
  run.tracker.steps = {0, 1, 7};                               // of a run before
  run.DieAt({WorkerRole::kTrainer, 0}, "ForwardBackward", 1);  // in step 2: back to the model
  REQUIRE(run.Run().ok());
  REQUIRE(run.tracker.steps == std::vector<int64_t>{1, 2, 3});
  run.tracker.steps.push_back(4);
  REQUIRE(run.Run((run.dir.path() / "checkpoints" / "step_2").string()).ok());
  REQUIRE(run.tracker.steps == std::vector<int64_t>{1, 2, 3});
}

TEST_CASE("A run ends before its epochs repeat sample ids", "[train_loop]") {
  testing::FakeRun run(1);
  run.prompts.epoch = kTrainEpochs;
  const absl::Status status = run.Run();
  REQUIRE(status.code() == absl::StatusCode::kOutOfRange);
  REQUIRE(run.journal.Count("rollout 0 Generate") == 0);
}

}  // namespace tandem
