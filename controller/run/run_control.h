// What users want of a run, and how far it is: the one place where the API's threads and the train
// loop's thread meet.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/mutex.h"

namespace tandem {

enum class RunState { kStarting, kRunning, kPaused, kFinished, kFailed };
std::string RunStateName(RunState state);

struct OperationStatus {
  std::string id;
  bool done = false;
  int64_t first_step = 0;
  int64_t last_step = 0;  // finished so far
  std::string error;
};

enum class StartMode { kTrain, kPaused };

// Thread-safe.
class RunControl {
 public:
  RunControl(int64_t total_steps, StartMode mode);

  // --- for users ---

  // `steps` more steps (0: to the end). The same request id gives the same operation.
  // FailedPrecondition: nothing left to do, ended, or an operation is under way.
  absl::StatusOr<OperationStatus> Run(const std::string& request_id, int64_t steps);
  // Blocks until the operation is done or the time is over. NotFound: unknown id.
  absl::StatusOr<OperationStatus> WaitOperation(const std::string& id, absl::Duration timeout);
  // After the current step. Returns the finished steps. A request id that the same call came with
  // before changes nothing, whatever was asked for since, and gets the answer that it got.
  int64_t Pause(const std::string& request_id = "");
  int64_t Resume(const std::string& request_id = "");
  int64_t StopAfterStep(const std::string& request_id = "");
  // Drops the step that is under way, if it has not changed the weights yet.
  void StopNow();
  // After the current step, as failed: something was found that no recovery mends.
  void Fail(const absl::Status& failure);
  // Runs `job` on the train loop's thread between two steps and waits for it. Unavailable: the run
  // ended first.
  absl::Status BetweenSteps(std::function<absl::Status()> job);

  struct Snapshot {
    RunState state = RunState::kStarting;
    int64_t finished_steps = 0;
    int64_t total_steps = 0;
    int64_t version = 0;  // weight version after the finished steps
    std::string error;
  };
  Snapshot snapshot() const;
  bool stop_now() const;

  // --- for the train loop ---

  // What Fail was called with; OK before.
  absl::Status failure() const;
  enum class Next { kStep, kEnd };
  // Blocks until there is a step to do or the run is to end; runs jobs meanwhile. With
  // StartMode::kTrain the run ends when all steps are done, with kPaused only when it is stopped.
  Next WaitForNext();
  void OnStarted(int64_t finished_steps, int64_t version);
  // The run ends after `steps`, fewer than it was made with. What is asked for ends there as well.
  void Shorten(int64_t steps);
  // Also after a recovery, when it goes back.
  void OnStepDone(int64_t finished_steps, int64_t version);
  void OnEnded(const absl::Status& status);

 private:
  struct Operation {
    OperationStatus status;
    int64_t target = 0;
  };
  struct Job {
    std::function<absl::Status()> run;
    std::promise<absl::Status> done;
  };

  // Runs `change` unless `call` came with that id before. The lock is taken here.
  int64_t Once(const std::string& call,
               const std::string& request_id,
               const std::function<void()>& change);
  void UpdateOperations() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mutex_);
  RunState CurrentState() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mutex_);
  // Blocks as WaitForNext does. nullopt: `job` is to be run first, without the lock.
  std::optional<Next> WaitForNextOrJob(std::shared_ptr<Job>* job);

  const StartMode mode_;
  mutable Mutex state_mutex_;
  ConditionVariable changed_;
  int64_t total_steps_ ABSL_GUARDED_BY(state_mutex_);
  bool started_ ABSL_GUARDED_BY(state_mutex_) = false;
  bool paused_ ABSL_GUARDED_BY(state_mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(state_mutex_) = false;
  bool stop_now_ ABSL_GUARDED_BY(state_mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(state_mutex_) = false;
  int64_t finished_steps_ ABSL_GUARDED_BY(state_mutex_) = 0;
  int64_t version_ ABSL_GUARDED_BY(state_mutex_) = 0;
  int64_t target_ ABSL_GUARDED_BY(state_mutex_) = 0;  // train up to this step
  std::string error_ ABSL_GUARDED_BY(state_mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(state_mutex_);
  std::map<std::string, Operation> operations_ ABSL_GUARDED_BY(state_mutex_);  // by id
  std::map<std::string, std::string> operation_of_request_ ABSL_GUARDED_BY(state_mutex_);
  // By call and request id.
  std::map<std::pair<std::string, std::string>, int64_t> answers_ ABSL_GUARDED_BY(state_mutex_);
  std::deque<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(state_mutex_);
};

}  // namespace tandem
