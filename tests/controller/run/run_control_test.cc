#include "controller/run/run_control.h"

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/mutex.h"

namespace tandem {

TEST_CASE("RunControl trains to the end and ends", "[run_control]") {
  RunControl control(2, StartMode::kTrain);
  REQUIRE(control.snapshot().state == RunState::kStarting);
  control.OnStarted(0, 0);
  REQUIRE(control.WaitForNext() == RunControl::Next::kStep);
  REQUIRE(control.snapshot().state == RunState::kRunning);
  control.OnStepDone(1, 1);
  REQUIRE(control.WaitForNext() == RunControl::Next::kStep);
  control.OnStepDone(2, 2);
  REQUIRE(control.WaitForNext() == RunControl::Next::kEnd);
  REQUIRE(control.snapshot().version == 2);
}

TEST_CASE("A step that is made shows while it is saved, and its operation is done after that",
          "[run_control]") {
  RunControl control(1, StartMode::kPaused);
  control.OnStarted(0, 0);
  const auto operation = control.Run("", 1);
  REQUIRE(operation.ok());
  control.OnStepDone(1, 1, StepStage::kMade);
  REQUIRE(control.snapshot().made_steps == 1);
  REQUIRE(control.snapshot().finished_steps == 0);
  REQUIRE(control.snapshot().version == 1);
  REQUIRE(control.snapshot().state == RunState::kRunning);
  REQUIRE_FALSE(control.WaitOperation(operation->id, absl::ZeroDuration())->done);
  control.OnStepDone(1, 1);
  REQUIRE(control.snapshot().state == RunState::kFinished);
  REQUIRE(control.WaitOperation(operation->id, absl::ZeroDuration())->done);
  control.OnStepDone(2, 2, StepStage::kMade);
  control.OnStepDone(1, 1, StepStage::kFailed);  // its checkpoint
  REQUIRE(control.snapshot().made_steps == 1);
  REQUIRE(control.snapshot().version == 1);
  control.OnStepDone(0, 0);  // a recovery went back
  REQUIRE(control.snapshot().made_steps == 0);
}

TEST_CASE("A lost step shows until it is made again", "[run_control]") {
  RunControl control(3, StartMode::kTrain);
  control.OnUndone(2);
  REQUIRE(control.snapshot().last_lost_step == 0);  // the newest step is not known yet
  control.OnStarted(0, 0);
  REQUIRE(control.snapshot().last_lost_step == 2);
  control.OnStepDone(1, 1);
  REQUIRE(control.snapshot().last_lost_step == 2);
  control.OnStepDone(2, 2, StepStage::kMade);
  REQUIRE(control.snapshot().last_lost_step == 0);
  control.OnStepDone(1, 1, StepStage::kFailed);
  REQUIRE(control.snapshot().last_lost_step == 2);
}

TEST_CASE("RunControl makes the steps that are asked for, once per request id", "[run_control]") {
  RunControl control(10, StartMode::kPaused);
  control.OnStarted(0, 0);
  REQUIRE(control.snapshot().state == RunState::kPaused);
  const auto first = control.Run("request-1", 2);
  REQUIRE(first.ok());
  REQUIRE(control.Run("request-1", 2)->id == first->id);
  REQUIRE(absl::IsFailedPrecondition(control.Run("request-2", 1).status()));
  REQUIRE(control.WaitForNext() == RunControl::Next::kStep);
  control.OnStepDone(1, 1);
  REQUIRE_FALSE(control.WaitOperation(first->id, absl::ZeroDuration())->done);
  REQUIRE(control.WaitForNext() == RunControl::Next::kStep);
  control.OnStepDone(2, 2);
  const auto done = control.WaitOperation(first->id, absl::ZeroDuration());
  REQUIRE(done->done);
  REQUIRE(done->first_step == 1);
  REQUIRE(done->last_step == 2);
  REQUIRE(control.snapshot().state == RunState::kPaused);
  REQUIRE(absl::IsNotFound(control.WaitOperation("nothing", absl::ZeroDuration()).status()));
  REQUIRE(control.Run("request-3", 0)->first_step == 3);
}

TEST_CASE("Steps that are asked for while a run starts are made from where it stands",
          "[run_control]") {
  RunControl control(9, StartMode::kPaused);
  const auto operation = control.Run("", 2);
  REQUIRE(operation.ok());
  control.OnStarted(4, 4);
  for (const int64_t step : {5, 6}) {
    REQUIRE_FALSE(control.WaitOperation(operation->id, absl::ZeroDuration())->done);
    REQUIRE(control.WaitForNext() == RunControl::Next::kStep);
    control.OnStepDone(step, step);
  }
  const auto done = control.WaitOperation(operation->id, absl::ZeroDuration());
  REQUIRE(done->done);
  REQUIRE(done->first_step == 5);
  REQUIRE(done->last_step == 6);
  REQUIRE(control.snapshot().state == RunState::kPaused);

  RunControl finished(4, StartMode::kPaused);
  const auto late = finished.Run("", 1);
  finished.OnStarted(4, 4);
  REQUIRE(finished.WaitOperation(late->id, absl::ZeroDuration())->done);
}

TEST_CASE("RunControl pauses after the step, resumes, stops", "[run_control]") {
  RunControl control(5, StartMode::kTrain);
  control.OnStarted(0, 0);
  control.Pause();
  REQUIRE(control.snapshot().state == RunState::kPaused);
  control.Resume();
  REQUIRE(control.WaitForNext() == RunControl::Next::kStep);
  REQUIRE(control.StopAfterStep() == 0);
  REQUIRE_FALSE(control.stop_now());
  REQUIRE(control.WaitForNext() == RunControl::Next::kEnd);
  control.StopNow();
  REQUIRE(control.stop_now());
}

TEST_CASE("RunControl ends a run that became shorter, and what was asked for with it",
          "[run_control]") {
  RunControl control(50, StartMode::kTrain);
  control.OnStarted(0, 0);
  control.Shorten(60);
  REQUIRE(control.snapshot().total_steps == 50);
  control.Shorten(2);
  control.OnStepDone(1, 1);
  REQUIRE(control.WaitForNext() == RunControl::Next::kStep);
  control.OnStepDone(2, 2);
  REQUIRE(control.WaitForNext() == RunControl::Next::kEnd);
  REQUIRE(control.snapshot().state == RunState::kFinished);

  RunControl paused(50, StartMode::kPaused);
  paused.OnStarted(0, 0);
  const auto operation = paused.Run("request", 10);
  paused.OnStepDone(1, 1);
  paused.Shorten(2);
  paused.OnStepDone(2, 2);
  REQUIRE(paused.WaitOperation(operation->id, absl::ZeroDuration())->done);
}

TEST_CASE("RunControl ends a run that has failed, with the first reason", "[run_control]") {
  RunControl control(5, StartMode::kTrain);
  control.OnStarted(0, 0);
  REQUIRE(control.failure().ok());
  control.Fail(absl::DataLossError("first"));
  control.Fail(absl::InternalError("second"));
  REQUIRE(control.WaitForNext() == RunControl::Next::kEnd);
  REQUIRE(control.failure() == absl::DataLossError("first"));
  REQUIRE_FALSE(control.stop_now());
  REQUIRE(absl::IsUnavailable(control.BetweenSteps([] { return absl::OkStatus(); })));
}

TEST_CASE("RunControl runs jobs between steps, and refuses them after the end", "[run_control]") {
  RunControl control(5, StartMode::kPaused);
  control.OnStarted(0, 0);
  absl::Status result = absl::UnknownError("not run");
  std::thread user([&] {
    result = control.BetweenSteps([] { return absl::DataLossError("from the job"); });
    control.StopAfterStep();
  });
  REQUIRE(control.WaitForNext() == RunControl::Next::kEnd);
  user.join();
  REQUIRE(absl::IsDataLoss(result));
  control.OnEnded(absl::OkStatus());
  REQUIRE(absl::IsUnavailable(control.BetweenSteps([] { return absl::OkStatus(); })));
  REQUIRE(absl::IsFailedPrecondition(control.Run("", 1).status()));
}

TEST_CASE("Users' calls that never end do not keep a run from training", "[run_control]") {
  RunControl control(5, StartMode::kTrain);
  control.OnStarted(0, 0);
  // Each job asks for another one before it ends, as a user does that calls in a loop.
  std::atomic<int> asked = 0, ran = 0;
  struct {
    Mutex mutex;
    std::vector<std::jthread> threads ABSL_GUARDED_BY(mutex);
  } users;
  const std::function<void()> ask = [&] {
    ++asked;
    const MutexLock lock(users.mutex);
    users.threads.emplace_back([&] {
      (void)control.BetweenSteps([&] {
        ++ran;
        if (asked < 100) ask();
        return absl::OkStatus();
      });
    });
  };
  ask();
  for (int step = 1; step <= 3; ++step) {
    REQUIRE(control.WaitForNext() == RunControl::Next::kStep);
    control.OnStepDone(step, step);
  }
  REQUIRE(ran <= 3 * kJobsBetweenSteps);
  control.OnEnded(absl::OkStatus());
}

TEST_CASE("A job whose caller has gone never runs", "[run_control]") {
  RunControl control(5, StartMode::kPaused);
  control.OnStarted(0, 0);
  bool ran = false;
  const absl::Status status = control.BetweenSteps(
      [&] {
        ran = true;
        return absl::OkStatus();
      },
      [] { return true; });
  REQUIRE(absl::IsCancelled(status));
  control.StopAfterStep();
  REQUIRE(control.WaitForNext() == RunControl::Next::kEnd);
  REQUIRE_FALSE(ran);
}

TEST_CASE("RunControl forgets the oldest answers and finished operations", "[run_control]") {
  RunControl control(1'000'000, StartMode::kPaused);
  control.OnStarted(0, 0);
  const auto first = control.Run("first", 1);
  control.OnStepDone(1, 1);
  for (size_t i = 0; i < kKeptAnswers; ++i) {
    const auto steps = static_cast<int64_t>(i) + 1;
    REQUIRE(control.Run("run " + std::to_string(i), 1).ok());
    control.OnStepDone(steps + 1, steps + 1);
  }
  REQUIRE(absl::IsNotFound(control.WaitOperation(first->id, absl::ZeroDuration()).status()));
  const auto last = control.Run("run " + std::to_string(kKeptAnswers - 1), 1);
  REQUIRE(last->done);  // the same operation

  const int64_t answered = control.Pause("first");
  control.Resume();
  for (size_t i = 0; i < kKeptAnswers; ++i) {
    control.Pause("pause " + std::to_string(i));
    control.Resume();
  }
  control.OnStepDone(2000, 2000);
  REQUIRE(control.Pause("first") == 2000);
  REQUIRE(answered < 2000);
}

TEST_CASE("RunControl ends operations with the run, and says why", "[run_control]") {
  RunControl control(5, StartMode::kPaused);
  control.OnStarted(0, 0);
  const auto operation = control.Run("", 3);
  REQUIRE_FALSE(control.snapshot().ending());
  control.OnEnded(absl::UnavailableError("trainer 1 is gone"));
  REQUIRE(control.snapshot().ending());
  const auto status = control.WaitOperation(operation->id, absl::InfiniteDuration());
  REQUIRE(status->done);
  REQUIRE(status->error == "trainer 1 is gone");
  REQUIRE(control.snapshot().state == RunState::kFailed);
}

TEST_CASE("A pause that comes again after a resume is the old one", "[run_control]") {
  RunControl control(10, StartMode::kTrain);
  control.OnStarted(0, 0);
  REQUIRE(control.Pause("a") == 0);
  REQUIRE(control.snapshot().state == RunState::kPaused);
  REQUIRE(control.Resume("a") == 0);  // ids of other calls are others
  control.OnStepDone(1, 1);
  REQUIRE(control.Pause("a") == 0);
  REQUIRE(control.snapshot().state == RunState::kRunning);
  REQUIRE(control.Pause() == 1);
  REQUIRE(control.Pause() == 1);
  REQUIRE(control.Resume("a") == 0);
  REQUIRE(control.snapshot().state == RunState::kPaused);
}

}  // namespace tandem
