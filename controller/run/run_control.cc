#include "controller/run/run_control.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/progress.h"
#include "common/base/status.h"

namespace tandem {

std::string RunStateName(RunState state) {
  switch (state) {
    case RunState::kStarting:
      return "starting";
    case RunState::kRunning:
      return "running";
    case RunState::kPaused:
      return "paused";
    case RunState::kFinished:
      return "finished";
    case RunState::kFailed:
      return "failed";
  }
  return "unknown";
}

RunControl::RunControl(int64_t total_steps, StartMode mode)
    : mode_(mode),
      total_steps_(total_steps),
      target_(mode == StartMode::kTrain ? total_steps : 0) {}

absl::StatusOr<OperationStatus> RunControl::Run(const std::string& request_id, int64_t steps) {
  const MutexLock lock(state_mutex_);
  if (!request_id.empty()) {
    const auto known = operation_of_request_.find(request_id);
    if (known != operation_of_request_.end()) return operations_.at(known->second).status;
  }
  if (steps < 0) return InvalidArgument("steps is {}; 0 or more is meant", steps);
  if (ended_ || stopping_) return FailedPrecondition("the run has ended");
  if (finished_steps_ >= total_steps_) {
    return FailedPrecondition("all {} steps are done; raise trainer.total_training_steps",
                              total_steps_);
  }
  if (!paused_ && target_ > finished_steps_) {
    return FailedPrecondition("the run is training up to step {} already; pause it first", target_);
  }
  Operation operation;
  operation.target = steps == 0 ? total_steps_ : std::min(finished_steps_ + steps, total_steps_);
  operation.status.id = fmt::format("run-{}", ++operations_begun_);
  operation.status.first_step = finished_steps_ + 1;
  operation.status.last_step = finished_steps_;
  target_ = operation.target;
  paused_ = false;
  if (!request_id.empty()) operation_of_request_[request_id] = operation.status.id;
  operations_[operation.status.id] = operation;
  asked_.emplace_back(operation.status.id, request_id);
  ForgetOldAnswers();
  changed_.NotifyAll();
  return operation.status;
}

absl::StatusOr<OperationStatus> RunControl::WaitOperation(const std::string& id,
                                                          absl::Duration timeout) {
  const MutexLock lock(state_mutex_);
  const auto deadline = std::chrono::steady_clock::now() +
                        absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24)));
  for (bool in_time = true;; in_time = changed_.WaitUntil(state_mutex_, deadline)) {
    const auto found = operations_.find(id);
    if (found == operations_.end()) {
      return MakeStatus(absl::StatusCode::kNotFound,
                        "no operation {}: it was never begun, or {} have been since", id,
                        kKeptAnswers);
    }
    if (found->second.status.done || !in_time) return found->second.status;
  }
}

int64_t RunControl::Once(const std::string& call,
                         const std::string& request_id,
                         const std::function<void()>& change) {
  const MutexLock lock(state_mutex_);
  if (!request_id.empty()) {
    const auto [answer, is_new] = answers_.try_emplace({call, request_id}, finished_steps_);
    if (!is_new) return answer->second;
    answered_.emplace_back(call, request_id);
    ForgetOldAnswers();
  }
  change();
  changed_.NotifyAll();
  return finished_steps_;
}

int64_t RunControl::Pause(const std::string& request_id) {
  return Once("Pause", request_id,
              [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mutex_) { paused_ = true; });
}

int64_t RunControl::Resume(const std::string& request_id) {
  return Once("Resume", request_id, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mutex_) {
    paused_ = false;
    if (target_ <= finished_steps_) target_ = total_steps_;
  });
}

int64_t RunControl::StopAfterStep(const std::string& request_id) {
  return Once("Stop", request_id,
              [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mutex_) { stopping_ = true; });
}

void RunControl::StopNow() {
  const MutexLock lock(state_mutex_);
  stopping_ = stop_now_ = true;
  changed_.NotifyAll();
}

void RunControl::Fail(const absl::Status& failure) {
  const MutexLock lock(state_mutex_);
  if (failure_.ok()) failure_ = failure;
  stopping_ = true;
  changed_.NotifyAll();
}

absl::Status RunControl::failure() const {
  const MutexLock lock(state_mutex_);
  return failure_;
}

void RunControl::ForgetOldAnswers() {
  for (; answered_.size() > kKeptAnswers; answered_.pop_front()) answers_.erase(answered_.front());
  while (asked_.size() > kKeptAnswers && operations_.at(asked_.front().first).status.done) {
    operations_.erase(asked_.front().first);
    operation_of_request_.erase(asked_.front().second);
    asked_.pop_front();
  }
}

absl::Status RunControl::BetweenSteps(std::function<absl::Status()> job,
                                      const std::function<bool()>& abandoned) {
  auto entry = std::make_shared<Job>();
  entry->run = std::move(job);
  std::future<absl::Status> done = entry->done.get_future();
  {
    const MutexLock lock(state_mutex_);
    if (ended_ || stopping_) return absl::UnavailableError("the run has ended");
    jobs_.push_back(entry);
    changed_.NotifyAll();
  }
  constexpr std::chrono::milliseconds kLookEvery{100};
  while (done.wait_for(kLookEvery) != std::future_status::ready) {
    if (abandoned && abandoned() && Withdraw(entry)) {
      return absl::CancelledError("the caller has gone");
    }
  }
  return done.get();
}

bool RunControl::Withdraw(const std::shared_ptr<Job>& job) {
  const MutexLock lock(state_mutex_);
  return std::erase(jobs_, job) > 0;
}

RunState RunControl::CurrentState() const {
  if (ended_) return error_.empty() ? RunState::kFinished : RunState::kFailed;
  if (!started_) return RunState::kStarting;
  if (finished_steps_ >= total_steps_) return RunState::kFinished;
  return paused_ || target_ <= finished_steps_ ? RunState::kPaused : RunState::kRunning;
}

RunControl::Snapshot RunControl::snapshot() const {
  const MutexLock lock(state_mutex_);
  return {.state = CurrentState(),
          .finished_steps = finished_steps_,
          .made_steps = made_steps_,
          .total_steps = total_steps_,
          .version = version_,
          // Until a run has started, its newest step is not known.
          .last_lost_step = started_ && last_undone_step_ > made_steps_ ? last_undone_step_ : 0,
          .error = error_,
          .stopping = stopping_,
          .ended = ended_};
}

bool RunControl::stop_now() const {
  const MutexLock lock(state_mutex_);
  return stop_now_;
}

RunControl::Next RunControl::WaitForNext() {
  int64_t jobs_left = 0;
  {
    const MutexLock lock(state_mutex_);
    jobs_left = std::min(kJobsBetweenSteps, std::ssize(jobs_));
  }
  while (true) {
    std::shared_ptr<Job> job;
    if (const std::optional<Next> next = WaitForNextOrJob(&jobs_left, &job)) return *next;
    NoteActivity("a user's call");
    job->done.set_value(job->run());
  }
}

std::optional<RunControl::Next> RunControl::WaitForNextOrJob(int64_t* jobs_left,
                                                             std::shared_ptr<Job>* job) {
  const MutexLock lock(state_mutex_);
  while (true) {
    if (stopping_) return Next::kEnd;
    const bool step_waits = !paused_ && target_ > finished_steps_;
    if (!jobs_.empty() && (!step_waits || *jobs_left > 0)) {
      *jobs_left -= 1;
      *job = std::move(jobs_.front());
      jobs_.pop_front();
      return std::nullopt;
    }
    if (finished_steps_ >= total_steps_ && mode_ == StartMode::kTrain) return Next::kEnd;
    if (step_waits) return Next::kStep;
    const OutsideWait for_a_user;
    changed_.Wait(state_mutex_);
  }
}

void RunControl::OnStarted(int64_t finished_steps, int64_t version) {
  const MutexLock lock(state_mutex_);
  started_ = true;
  finished_steps_ = made_steps_ = finished_steps;
  version_ = version;
  // What was asked for before it was known where the run stands counted from 0.
  target_ = std::min(target_ + finished_steps, total_steps_);
  for (auto& [id, operation] : operations_) {
    operation.target = std::min(operation.target + finished_steps, total_steps_);
    operation.status.first_step = finished_steps + 1;
  }
  UpdateOperations();
  changed_.NotifyAll();
}

void RunControl::Shorten(int64_t steps) {
  const MutexLock lock(state_mutex_);
  total_steps_ = std::min(total_steps_, steps);
  target_ = std::min(target_, total_steps_);
  for (auto& [id, operation] : operations_) {
    operation.target = std::min(operation.target, total_steps_);
  }
  changed_.NotifyAll();
}

void RunControl::OnUndone(int64_t last_step) {
  const MutexLock lock(state_mutex_);
  last_undone_step_ = last_step;
}

void RunControl::OnStepDone(int64_t steps, int64_t version, StepStage stage) {
  const MutexLock lock(state_mutex_);
  made_steps_ = stage == StepStage::kFailed ? finished_steps_ : steps;
  version_ = version;
  if (stage != StepStage::kFinished) return;
  finished_steps_ = steps;
  UpdateOperations();
  changed_.NotifyAll();
}

void RunControl::OnEnded(const absl::Status& status) {
  const MutexLock lock(state_mutex_);
  ended_ = true;
  if (!status.ok()) error_ = std::string(status.message());
  UpdateOperations();
  for (const std::shared_ptr<Job>& job : jobs_) {
    job->done.set_value(absl::UnavailableError("the run has ended"));
  }
  jobs_.clear();
  changed_.NotifyAll();
}

void RunControl::UpdateOperations() {
  for (auto& [id, operation] : operations_) {
    OperationStatus& status = operation.status;
    if (status.done) continue;
    status.last_step = std::min(finished_steps_, operation.target);
    status.done = finished_steps_ >= operation.target || ended_;
    if (ended_ && finished_steps_ < operation.target) {
      status.error = error_.empty() ? "the run was stopped" : error_;
    }
  }
}

}  // namespace tandem
