// The messages of a run about failures, and its checks after them.
#include <catch2/catch.hpp>

#include "controller/store/batch_file.h"
#include "tests/fakes/fake_run.h"

namespace tandem {

TEST_CASE("A checkpoint that cannot be loaded is told from a run that failed, with a way on",
          "[train_loop]") {
  testing::FakeRun run(1);
  run.options.save_freq = 1;
  REQUIRE(run.Run().ok());
  REQUIRE_FALSE(run.loop->failed_loading());
  const std::string newest = run.loop->newest_checkpoint();
  run.journal.FailNext("trainer 0", "Reset", absl::DataLossError("the digest of x is 1"));
  absl::Status status = run.Run(newest);
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(run.loop->failed_loading());
  const std::string message(status.message());
  REQUIRE(message.find(newest + " cannot be loaded: ") != std::string::npos);
  REQUIRE(message.find("checkpoints/step_1") != std::string::npos);
  // What fails after loading is of the run.
  run.journal.FailNext("trainer 0", "CheckWeights", absl::DataLossError("not equal"));
  REQUIRE(absl::IsDataLoss(run.Run(newest)));
  REQUIRE_FALSE(run.loop->failed_loading());
}

TEST_CASE("After a recovery and after a restart the weights are checked again",
          "[train_loop][recovery]") {
  testing::FakeRun trainer(2);
  trainer.options.total_steps = 1;
  trainer.DieAt({WorkerRole::kTrainer, 1}, "ForwardBackward");
  REQUIRE(trainer.Run().ok());
  REQUIRE(trainer.journal.Count("trainer 0 CheckWeights(/model)") == 2);

  testing::FakeRun rollout(2);
  rollout.options.total_steps = 1;
  rollout.DieAt({WorkerRole::kRollout, 1}, "Generate");
  REQUIRE(rollout.Run().ok());
  REQUIRE(rollout.journal.Count("trainer 0 CheckWeights(/model)") == 1);
  REQUIRE(rollout.journal.Count("trainer 0 CheckWeights()") == 1);
}

TEST_CASE("A connection that is away for a while does not spend the restart budget",
          "[train_loop][recovery]") {
  testing::FakeRun run(2);
  run.options.heartbeat_timeout = absl::Minutes(2);
  // Trainer 1 lives, and what it does fails until the connection is back.
  constexpr absl::Duration kAway = absl::Minutes(3);
  const Instant back = run.clock.Now() + kAway;
  int calls = 0;
  run.journal.OnCall("trainer 1 ForwardBackward", [&] {
    ++calls;
    if (run.clock.Now() >= back) return;
    run.journal.FailNext("trainer 1", "ForwardBackward", absl::UnavailableError("cut off"));
  });
  REQUIRE(run.Run().ok());
  // The second attempt follows at once, then each after as long as a worker may be silent.
  REQUIRE(run.budget.spent() == 3);
  REQUIRE(calls == 3 + 2);
  REQUIRE(run.clock.Now() >= back);
}

TEST_CASE("A connection that stays open and answers nothing is given up after one call",
          "[train_loop][recovery]") {
  struct Stalled {
    const char *worker, *method;
    WorkerKey key;
    int begins_at;  // a number of optimizer steps
    int resets;     // of the trainers
  };
  for (const Stalled& stalled :
       {Stalled{"trainer 1", "ForwardBackward", {WorkerRole::kTrainer, 1}, 0, 2},
        {"trainer 1", "SyncWeights", {WorkerRole::kTrainer, 1}, 1, 1},
        {"rollout 1", "Generate", {WorkerRole::kRollout, 1}, 0, 1},
        {"rollout 1", "Wake", {WorkerRole::kRollout, 1}, 1, 1}}) {
    const std::string line = std::string(stalled.worker) + " " + stalled.method;
    INFO(line);
    testing::FakeRun run(2);
    int unanswered = 0;
    run.journal.OnCall(line, [&] {
      if (run.journal.Count("trainer 0 OptimizerStep") < stalled.begins_at) return;
      if (run.clients_made[stalled.key] > 1) return;
      ++unanswered;
      run.journal.FailNext(stalled.worker, stalled.method,
                           absl::DeadlineExceededError("no answer within 10m"));
    });
    REQUIRE(run.Run().ok());
    REQUIRE(unanswered == 1);
    REQUIRE(run.clients_made[stalled.key] == 2);
    REQUIRE(run.journal.Count("trainer 0 Reset") == stalled.resets);
    REQUIRE(run.budget.spent() == 1);
  }
}

TEST_CASE("A group of trainers that broke in a sync is made anew", "[train_loop][recovery]") {
  testing::FakeRun run(2);
  // As after a collective for which a rank came too late: all later ones fail until the reset.
  run.journal.OnCall("trainer 0 SyncWeights", [&] {
    if (run.journal.Count("trainer 0 OptimizerStep") == 0) return;
    if (run.journal.Count("trainer 0 Reset") > 1) return;
    run.journal.FailNext("trainer 0", "SyncWeights", absl::UnavailableError("rank 1 did not come"));
  });
  REQUIRE(run.Run().ok());
  REQUIRE(run.journal.Count("trainer 0 Reset") == 2);
  REQUIRE(run.budget.spent() <= 2);
}

TEST_CASE("Three deaths of a rollout in one sync cost no recovery", "[train_loop][recovery]") {
  testing::FakeRun run(2);
  int deaths = 0;
  run.journal.OnCall("rollout 1 Wake", [&] {
    if (run.journal.Count("trainer 0 OptimizerStep") != 1 || deaths == 3) return;
    ++deaths;
    run.DieAt({WorkerRole::kRollout, 1}, "Wake");
  });
  REQUIRE(run.Run().ok());
  REQUIRE(deaths == 3);
  REQUIRE(run.journal.Count("trainer 0 Reset") == 1);
  REQUIRE(run.budget.spent() == 1);
}

TEST_CASE("Workers that die one after the other are replaced without a pause",
          "[train_loop][recovery]") {
  testing::FakeRun run(2);
  run.options.heartbeat_timeout = absl::Minutes(2);
  run.DieAt({WorkerRole::kTrainer, 1}, "ForwardBackward");
  run.DieAt({WorkerRole::kTrainer, 0}, "ForwardBackward", 1);
  const Instant begin = run.clock.Now();
  REQUIRE(run.Run().ok());
  REQUIRE(run.budget.spent() == 2);
  REQUIRE(run.clock.Now() - begin < run.options.heartbeat_timeout);
}

TEST_CASE("An evaluation whose scores do not match its responses fails", "[train_loop]") {
  testing::FakeRun run(1);
  run.options.val_before_train = true;
  run.validation = {{.data_row = 0, .tokens = {5}, .data_source = "fake"}};
  run.reward.too_many = 1;
  const absl::Status status = run.Run();
  REQUIRE(absl::IsInternal(status));
  REQUIRE(std::string(status.message()).find("2 scores for 1 responses") != std::string::npos);
}

TEST_CASE("A difference between rollout and trainer saves its step", "[train_loop]") {
  testing::FakeRun run(1);
  run.differing = 2;
  const std::vector<float> training = {-1.5f, -2.0f};
  run.on_forward_backward = [&](const ForwardBackwardCall&, ForwardBackwardReply&) {
    const uint64_t id = run.samples->Metas().front().sample_id;
    REQUIRE(run.samples->PutArray(1, TokenArray::kTraining, id, training).ok());
  };
  const std::string message(run.Run().message());
  const std::string file = run.dir.path() / "failed_steps" / "step_1" / "step.batch";
  REQUIRE(message.find("tandemctl batch inspect " + file) != std::string::npos);
  const auto batch = BatchReader::Open(file);
  REQUIRE(batch.ok());
  REQUIRE(message.starts_with((*batch)->info().failure));
  REQUIRE((*batch)->info().mini_batch == 0);
  REQUIRE((*batch)->size() == run.samples->Metas().size());
  REQUIRE((*batch)->Read(0).training_log_probs == training);
  REQUIRE((*batch)->Read(1).training_log_probs.empty());
}

TEST_CASE("A ratio that is not 1 saves its step, another failure of the trainers does not",
          "[train_loop]") {
  for (const auto& [failure, saved] :
       {std::pair{absl::DataLossError("2 of 9 tokens have an importance ratio other than 1"), true},
        std::pair{absl::InvalidArgumentError("sample 0x1 does not fit"), false}}) {
    testing::FakeRun run(2);
    run.journal.FailNext("trainer 1", "ForwardBackward", failure);
    const absl::Status status = run.Run();
    REQUIRE(status.code() == failure.code());
    const std::string file = run.dir.path() / "failed_steps" / "step_1" / "step.batch";
    REQUIRE(BatchReader::Open(file).ok() == saved);
    const bool said = std::string(status.message()).find(file) != std::string::npos;
    REQUIRE(said == saved);
  }
}

}  // namespace tandem
