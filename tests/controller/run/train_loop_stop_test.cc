// The end of a run that is stopped during a recovery or has no recovery left.
#include <string>

#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"

namespace tandem {

TEST_CASE("A loss past cluster.max_restarts in a sync is told once, and the step is kept",
          "[train_loop][recovery]") {
  testing::FakeRun run(2, /*max_restarts=*/0);
  run.journal.FailNext("trainer 1", "SyncWeights", absl::UnavailableError("rollout 1 is gone"), 1);
  const absl::Status status = run.Run();
  REQUIRE(absl::IsInternal(status));
  const std::string said(status.message());
  INFO(said);
  REQUIRE(said.find("gave up after 0 recoveries") != std::string::npos);
  REQUIRE(said.find("gave up") == said.rfind("gave up"));
  REQUIRE(CheckpointIndex::ReadState(run.loop->newest_checkpoint())->step == 1);
}

TEST_CASE("A rollout lost in a weight sync is reported before it is waited for",
          "[train_loop][recovery]") {
  testing::FakeRun run(2);
  run.journal.FailNext("trainer 1", "SyncWeights", absl::UnavailableError("rollout 1 is gone"), 1);
  run.journal.OnCall("trainer 1 SyncWeights(v1,", [&run] {
    run.registry.MarkLost({WorkerRole::kRollout, 1}, 1);
  });
  std::string reported;  // the newest message when the wait begins
  run.clock.OnSleep([&] {
    if (reported.empty()) reported = run.progress.messages.back();
    run.control->StopNow();
  });
  REQUIRE(run.Run().ok());
  INFO(reported);
  REQUIRE(reported.starts_with("a worker was lost while weights were synced"));
  REQUIRE(reported.find("rollout 1 is gone") != std::string::npos);
}

TEST_CASE("A stop while a lost trainer is waited for ends the run as any stop does",
          "[train_loop][recovery]") {
  testing::FakeRun run(1);
  run.options.save_freq = 1;
  run.options.total_steps = 3;
  run.DieAt({WorkerRole::kTrainer, 0}, "ForwardBackward", 1);
  // It stays away.
  run.clock.OnSleep([&run] { run.control->StopNow(); });
  const absl::Status status = run.Run();
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE_FALSE(run.loop->complete());
  REQUIRE(run.progress.messages.back().rfind("recovering (1 of 3)", 0) == 0);
  REQUIRE(run.loop->position().finished_steps == 1);
  REQUIRE(CheckpointIndex::ReadState(run.loop->newest_checkpoint())->step == 1);
}

TEST_CASE("A stop in the middle of a recovery saves nothing under another step's number",
          "[train_loop][recovery]") {
  testing::FakeRun run(1);
  run.options.total_steps = 4;
  run.options.save_freq = 2;
  run.DieAt({WorkerRole::kTrainer, 0}, "ForwardBackward", 3);
  // Step 3 is finished and not saved; the trainer is brought back to step 2, and no further.
  run.journal.OnCall("trainer 0 Reset(step_2", [&run] { run.control->StopNow(); });
  run.journal.FailNext("trainer 0", "SyncWeights", absl::CancelledError("stopped"), 4);
  const absl::Status status = run.Run();
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE(CheckpointIndex::ReadState(run.loop->newest_checkpoint())->step == 2);
  REQUIRE(run.journal.Count("trainer 0 SaveState") == 1);
}

TEST_CASE("A stop while workers are waited for at the start is not a failure", "[train_loop]") {
  testing::FakeRun run(1);
  run.Prepare(StartMode::kTrain);
  run.registry.MarkLost({WorkerRole::kTrainer, 0}, 1);
  run.clock.OnSleep([&run] { run.control->StopNow(); });
  const absl::Status status = run.loop->Run("");
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE(run.journal.Count("trainer 0 Reset") == 0);
}

}  // namespace tandem
