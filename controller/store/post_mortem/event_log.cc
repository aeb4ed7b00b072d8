#include "controller/store/post_mortem/event_log.h"

#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "common/base/log.h"

namespace tandem {

RunOutcome OutcomeOf(const RunSummary& summary) {
  if (summary.completed) return RunOutcome::kFinished;
  return summary.error.empty() ? RunOutcome::kStopped : RunOutcome::kFailed;
}

void EventLog::StartWriting() {
  auto earlier = store_.ListEvents(static_cast<int64_t>(kNewest));
  {
    const MutexLock lock(events_mutex_);
    if (earlier.ok()) {
      for (const EventRecord& event : std::exchange(newest_, *std::move(earlier))) Note(event);
    }
    writes_ = true;
  }
  Flush();
}

std::vector<EventRecord> EventLog::Newest() const {
  const MutexLock lock(events_mutex_);
  return newest_;
}

void EventLog::Note(const EventRecord& event) {
  if (newest_.size() == kNewest) newest_.erase(newest_.begin());
  newest_.push_back(event);
}

void EventLog::Flush() {
  const MutexLock writes(write_mutex_);  // one writer at a time, so that events keep their order
  std::vector<EventRecord> events;
  {
    const MutexLock lock(events_mutex_);
    if (!writes_ || waiting_.empty()) return;
    events.swap(waiting_);
  }
  const absl::Status recorded = store_.RecordEvents(events);
  if (recorded.ok()) return;
  LogDebug("{} events wait for run.db: {}", events.size(), std::string(recorded.message()));
  const MutexLock lock(events_mutex_);
  waiting_.insert(waiting_.begin(), events.begin(), events.end());
  if (waiting_.size() > kMostKept) {
    waiting_.erase(waiting_.begin(), waiting_.end() - static_cast<std::ptrdiff_t>(kMostKept));
  }
}

void EventLog::OnRunStart(const RunInfo& info) {
  {
    const MutexLock lock(events_mutex_);
    step_ = info.first_step;
  }
  OnEvent({.kind = "start",
           .text = fmt::format("start of {} after step {} of {}", info.run_id, info.first_step,
                               info.total_steps)});
}

void EventLog::OnPhase(int64_t step, const std::string& phase) {
  if (blackbox_ != nullptr) blackbox_->NotePhase(step, phase);
}

void EventLog::OnShortened(int64_t steps) {
  OnMessage(fmt::format("the run ends after {} steps", steps));
}

void EventLog::OnStep(const StepRecord& record) {
  if (blackbox_ != nullptr) blackbox_->NotePhase(record.step, "");
  {
    const MutexLock lock(events_mutex_);
    step_ = record.step;
  }
  Flush();
}

void EventLog::OnEvaluation(const EvaluationRecord& record) {
  if (blackbox_ != nullptr) blackbox_->NotePhase(record.step, "");
}

void EventLog::OnMessage(const std::string& text) {
  OnEvent({.severity = text.starts_with("warning: ") ? "warning" : "info", .text = text});
}

void EventLog::OnEvent(const EventRecord& event) {
  if (!event.recorded) return;
  {
    const MutexLock lock(events_mutex_);
    if (waiting_.size() == kMostKept) waiting_.erase(waiting_.begin());
    waiting_.push_back(event);
    waiting_.back().time_us = absl::ToUnixMicros(clock_.WallNow());
    waiting_.back().step = step_;
    Note(waiting_.back());
  }
  Flush();
}

void EventLog::OnRunEnd(const RunSummary& summary, const RunFigures&) {
  const std::string outcome = RunOutcomeName(OutcomeOf(summary));
  const std::string how = summary.error.empty() ? outcome : outcome + ": " + summary.error;
  OnEvent({.severity = summary.error.empty() ? "info" : "error",
           .kind = "end",
           .text = fmt::format("{} after step {}", how, summary.steps)});
  if (blackbox_ != nullptr) blackbox_->NoteEnd(OutcomeOf(summary), summary.error);
}

}  // namespace tandem
