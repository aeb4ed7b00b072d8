// The users' requests to a run, and its progress: the only object that the API's threads and the
// train loop's thread share.
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
  int64_t last_step = 0;  // newest finished step
  std::string error;
};

enum class StartMode { kTrain, kPaused };
enum class StepStage { kFailed, kMade, kFinished };

// Calls whose answers are remembered, so that repeating one changes nothing; the oldest are
// forgotten first, operations only once they are done.
inline constexpr size_t kKeptAnswers = 1000;
inline constexpr int64_t kJobsBetweenSteps = 8;

// Thread-safe.
class RunControl {
 public:
  RunControl(int64_t total_steps, StartMode mode);

  // --- for users ---

  // Requests `steps` more steps (0: all that are left). The same request id returns the same
  // operation. FailedPrecondition: all steps are done, the run has ended, or it is already training
  // towards a target.
  absl::StatusOr<OperationStatus> Run(const std::string& request_id, int64_t steps);
  // Blocks until the operation is done or the timeout expires. NotFound: unknown id.
  absl::StatusOr<OperationStatus> WaitOperation(const std::string& id, absl::Duration timeout);
  // Pause and StopAfterStep take effect after the current step. All three return the number of
  // finished steps. Repeating a call with the same request id changes nothing, even if other calls
  // came in between, and returns the first answer.
  int64_t Pause(const std::string& request_id = "");
  int64_t Resume(const std::string& request_id = "");
  int64_t StopAfterStep(const std::string& request_id = "");
  // Drops the step in progress, if it has not changed the weights yet.
  void StopNow();
  // Ends the run as failed after the current step, for a failure that no recovery can repair.
  void Fail(const absl::Status& failure);
  // Runs `job` on the train loop's thread between two steps and waits for it. While the run trains,
  // a gap between two steps runs only jobs that were already waiting when the gap began, at most
  // kJobsBetweenSteps, so that users' calls never keep training from going on. Unavailable: the run
  // ended first. Cancelled: `abandoned` returned true before the job began, which it then never
  // does; a job that has begun must look at it itself.
  absl::Status BetweenSteps(std::function<absl::Status()> job,
                            const std::function<bool()>& abandoned = {});

  struct Snapshot {
    RunState state = RunState::kStarting;
    int64_t finished_steps = 0;
    int64_t made_steps = 0;  // one more than finished while that one is saved or validated
    int64_t total_steps = 0;
    int64_t version = 0;  // weight version after the made steps
    // The newest step after the made ones that was undone and is not made again yet; 0: none.
    int64_t last_lost_step = 0;
    std::string error;
    bool stopping = false;  // the run is to end after the current step, or now
    bool ended = false;     // by OnEnded

    // The run no longer waits for disks.
    bool ending() const { return stopping || ended; }
  };
  Snapshot snapshot() const;
  bool stop_now() const;

  // --- for the train loop ---

  // The argument of the first Fail; OK if there was none.
  absl::Status failure() const;
  enum class Next { kStep, kEnd };
  // Blocks until there is a step to run or the run is to end; runs jobs meanwhile. With
  // StartMode::kTrain the run ends when all steps are done, with kPaused only when it is stopped.
  Next WaitForNext();
  // Once, as soon as it is known where the run stands. Steps that were asked for before are made
  // from there on.
  void OnStarted(int64_t finished_steps, int64_t version);
  // Ends the run after `steps` steps, if that is fewer than so far. Operations are shortened as
  // well.
  void Shorten(int64_t steps);
  // The newest of all steps that recoveries and starts have undone, made again or not; 0: none.
  void OnUndone(int64_t last_step);
  // Called after a step, and after a recovery, which may have gone back to an earlier step. kMade:
  // the step is recorded, but its checkpoint and validation are still to come; operations and stop
  // requests do not count it as finished. kFailed: it was made or not, and does not count until a
  // recovery says where the run stands.
  void OnStepDone(int64_t steps, int64_t version, StepStage stage = StepStage::kFinished);
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
  // Whether the job was still waiting, and now never runs.
  bool Withdraw(const std::shared_ptr<Job>& job);

  // Runs `change` unless `call` was made with that id before. Takes the lock.
  int64_t Once(const std::string& call,
               const std::string& request_id,
               const std::function<void()>& change);
  void UpdateOperations() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mutex_);
  RunState CurrentState() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mutex_);
  // Blocks as WaitForNext does. nullopt: the caller must first run `job`, without the lock. While
  // there is a step to run, at most `jobs_left` jobs are given out.
  std::optional<Next> WaitForNextOrJob(int64_t* jobs_left, std::shared_ptr<Job>* job);
  // Drops the oldest answers and finished operations beyond kKeptAnswers.
  void ForgetOldAnswers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mutex_);

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
  int64_t made_steps_ ABSL_GUARDED_BY(state_mutex_) = 0;
  int64_t version_ ABSL_GUARDED_BY(state_mutex_) = 0;
  int64_t last_undone_step_ ABSL_GUARDED_BY(state_mutex_) = 0;
  int64_t target_ ABSL_GUARDED_BY(state_mutex_) = 0;  // train up to this step
  std::string error_ ABSL_GUARDED_BY(state_mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(state_mutex_);
  std::map<std::string, Operation> operations_ ABSL_GUARDED_BY(state_mutex_);  // by id
  std::map<std::string, std::string> operation_of_request_ ABSL_GUARDED_BY(state_mutex_);
  // Finished steps that were answered, by call and request id, and their keys from the oldest on.
  std::map<std::pair<std::string, std::string>, int64_t> answers_ ABSL_GUARDED_BY(state_mutex_);
  std::deque<std::pair<std::string, std::string>> answered_ ABSL_GUARDED_BY(state_mutex_);
  // Operations from the oldest on, with the request id that asked for each.
  std::deque<std::pair<std::string, std::string>> asked_ ABSL_GUARDED_BY(state_mutex_);
  int64_t operations_begun_ ABSL_GUARDED_BY(state_mutex_) = 0;
  std::deque<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(state_mutex_);
};

}  // namespace tandem
