// A run whose time is limited: its first steps set the length, and later starts keep it.
#include <catch2/catch.hpp>

#include "common/base/disk_refusal.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

// Every step takes ten seconds.
struct SlowRun {
  explicit SlowRun(int64_t seconds) : run(1) {
    run.options.total_steps = 9;
    run.options.limit = {.time = absl::Seconds(seconds), .fewest = 2};
    run.on_forward_backward = [this](const ForwardBackwardCall&, ForwardBackwardReply&) {
      run.clock.Advance(absl::Seconds(10));
    };
  }
  // What it said of its length.
  std::string Said() const {
    for (const std::string& message : run.progress.messages) {
      if (message.rfind("a step takes", 0) == 0) return message;
    }
    return "";
  }
  testing::FakeRun run;
};

using testing::Has;

}  // namespace

TEST_CASE("A run ends after the steps that its time allows, saved and validated", "[train_loop]") {
  SlowRun slow(45);
  testing::FakeRun& run = slow.run;
  run.validation = {{.data_row = 0, .tokens = {5}, .data_source = "fake"}};
  const absl::Status status = run.Run();
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE(run.loop->complete());
  REQUIRE(run.loop->position().finished_steps == 4);
  REQUIRE(run.loop->total_steps() == 4);
  REQUIRE(run.control->snapshot().total_steps == 4);
  REQUIRE(run.progress.shortened == std::vector<int64_t>{4});
  REQUIRE(Has(slow.Said(), "a step takes 10 s here: 4 of 9 steps in 40 s"));
  REQUIRE(Has(slow.Said(), "trainer.max_seconds=0"));
  REQUIRE(run.store.evaluations.size() == 1);
  REQUIRE(run.store.evaluations[0].step == 4);
  REQUIRE(CheckpointIndex::ReadState(run.loop->newest_checkpoint())->planned_steps == 4);
}

TEST_CASE("A run that is in time makes all of its steps", "[train_loop]") {
  SlowRun slow(90);
  REQUIRE(slow.run.Run().ok());
  REQUIRE(slow.run.loop->position().finished_steps == 9);
  REQUIRE(slow.run.progress.shortened.empty());
  REQUIRE(slow.Said() == "a step takes 10 s here: 9 of 9 steps in 90 s");
}

TEST_CASE("A first step that takes longer is not a measure of the others", "[train_loop]") {
  SlowRun slow(100);
  slow.run.on_forward_backward = [&](const ForwardBackwardCall& command, ForwardBackwardReply&) {
    slow.run.clock.Advance(absl::Seconds(command.step == 1 ? 40 : 10));
  };
  REQUIRE(slow.run.Run().ok());
  REQUIRE(slow.run.loop->position().finished_steps == 7);
  REQUIRE(Has(slow.Said(), "a step takes 10 s here: 7 of 9 steps in 100 s"));
}

TEST_CASE("A run whose first step takes all of its time ends with it", "[train_loop]") {
  SlowRun slow(15);
  slow.run.options.limit.fewest = 1;
  REQUIRE(slow.run.Run().ok());
  REQUIRE(slow.run.loop->position().finished_steps == 1);
}

TEST_CASE("A wait for a disk is not part of a step's time", "[train_loop]") {
  SlowRun slow(45);
  slow.run.tracker.on_write = [calls = 0]() mutable {
    // Ten times ten seconds, each time.
    return ++calls % 11 == 0
               ? absl::OkStatus()
               : WithDiskRefused(absl::ResourceExhaustedError("No space left on device"));
  };
  REQUIRE(slow.run.Run().ok());
  REQUIRE(slow.run.loop->position().finished_steps == 4);
  REQUIRE(Has(slow.Said(), "a step takes 10 s here: 4 of 9 steps in 40 s"));
}

TEST_CASE("A run without time makes its fewest steps", "[train_loop]") {
  SlowRun slow(1);
  REQUIRE(slow.run.Run().ok());
  REQUIRE(slow.run.loop->position().finished_steps == 2);
}

TEST_CASE("A recovery does not settle the length again", "[train_loop][recovery]") {
  SlowRun slow(45);
  slow.run.DieAt({WorkerRole::kTrainer, 0}, "ForwardBackward", 2);
  REQUIRE(slow.run.Run().ok());
  REQUIRE(slow.run.loop->position().finished_steps == 4);
  REQUIRE(slow.run.progress.shortened.size() == 1);
}

TEST_CASE("A run that was stopped goes on to the length that was settled", "[train_loop]") {
  SlowRun slow(45);
  testing::FakeRun& run = slow.run;
  run.Prepare(StartMode::kTrain);
  run.on_forward_backward = [&](const ForwardBackwardCall& command, ForwardBackwardReply&) {
    run.clock.Advance(absl::Seconds(10));
    if (command.step == 2) run.control->StopAfterStep();
  };
  REQUIRE(run.loop->Run("").ok());
  REQUIRE_FALSE(run.loop->complete());
  const std::string checkpoint = run.loop->newest_checkpoint();
  REQUIRE(CheckpointIndex::ReadState(checkpoint)->planned_steps == 4);

  SECTION("although a step takes longer now") {
    run.on_forward_backward = [&](const ForwardBackwardCall&, ForwardBackwardReply&) {
      run.clock.Advance(absl::Seconds(100));
    };
    REQUIRE(run.Run(checkpoint).ok());
    REQUIRE(run.loop->complete());
    REQUIRE(run.loop->position().finished_steps == 4);
  }
  SECTION("and to its end where its time is no longer bounded") {
    run.options.limit = {};
    REQUIRE(run.Run(checkpoint).ok());
    REQUIRE(run.loop->position().finished_steps == 9);
    REQUIRE(CheckpointIndex::ReadState(run.loop->newest_checkpoint())->planned_steps == 0);
  }
}

}  // namespace tandem
