#include "controller/view/run_dir_view.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "common/base/status.h"
#include "controller/reward/answer_text.h"
#include "controller/store/post_mortem/event_log.h"
#include "controller/store/post_mortem/run_state.h"
#include "controller/store/time_stamp.h"
#include "controller/view/unsaved_steps.h"
#include "controller/wire/run_answers.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {
namespace {

constexpr size_t kLogLines = 3;

double SecondsBetween(int64_t from_us, int64_t to_us) {
  return from_us == 0 || to_us < from_us ? 0 : static_cast<double>(to_us - from_us) / 1e6;
}

// Texts of the blackbox and of logs may be cut within a character, or be no UTF-8 at all, which no
// message may hold: AsUtf8 replaces what is none.
void AddCalls(const RunDirState& state, v1::GetStatusResponse& status) {
  for (const LastCall& call : state.calls) {
    v1::LastCall* const proto = status.add_calls();
    proto->set_worker(AsUtf8(call.worker));
    proto->set_method(AsUtf8(call.method));
    proto->set_step(call.step);
    proto->set_began_at(StampText(call.began_us));
    proto->set_answered_at(StampText(call.answered_us));
    if (call.answered_us != 0) {
      proto->set_code(absl::StatusCodeToString(static_cast<absl::StatusCode>(call.code)));
    }
  }
}

void AddLogs(const std::string& run_dir, v1::GetStatusResponse& status) {
  for (const LogTail& tail : ReadLogTails(run_dir, kLogLines)) {
    v1::LogTail* const proto = status.add_logs();
    proto->set_file(AsUtf8(tail.file));
    for (const std::string& line : tail.lines) proto->add_lines(AsUtf8(line));
  }
}

// Also where the moment is known from a step alone, as of runs without a blackbox.
absl::Status AddNewestStep(SqliteRunReader& records,
                           RunDirState& state,
                           v1::GetStatusResponse& status) {
  TANDEM_ASSIGN_OR_RETURN(const auto steps,
                          records.ListSteps({.limit = 1, .workers = false, .phases = false}));
  if (steps.empty()) {
    status.set_step(state.info ? state.info->first_step : 0);
    return absl::OkStatus();
  }
  status.set_step(steps.back().step);
  status.set_version(steps.back().version);
  state.newest_us = std::max(state.newest_us, MicrosOfStamp(steps.back().finished_at));
  return absl::OkStatus();
}

// The last step that a recovery undid, and the newest events. What cannot be read is left out: the
// status is of use without it.
void AddRecords(RunRecords& records, v1::GetStatusResponse& status) {
  const auto undone = records.ListSteps({.first_step = status.step() + 1,
                                         .limit = 1,
                                         .undone = true,
                                         .workers = false,
                                         .phases = false});
  if (undone.ok() && !undone->empty()) status.set_last_lost_step(undone->back().step);
  const auto events = records.ListEvents(static_cast<int64_t>(EventLog::kNewest));
  if (events.ok()) AddEventsToStatus(*events, status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunDirView>> RunDirView::Open(const std::string& run_dir) {
  std::error_code error;
  const std::string path = run_dir + "/run.db";
  if (std::filesystem::exists(path, error) || error) {
    TANDEM_ASSIGN_OR_RETURN(auto records, SqliteRunReader::Open(path));
    return std::unique_ptr<RunDirView>(new RunDirView(run_dir, std::move(records)));
  }
  if (std::filesystem::exists(run_dir + "/blackbox", error)) {
    return std::unique_ptr<RunDirView>(new RunDirView(run_dir, nullptr));
  }
  return MakeStatus(absl::StatusCode::kNotFound, "there is no run in {}: {} does not exist",
                    run_dir, path);
}

absl::StatusOr<v1::GetStatusResponse> RunDirView::GetStatus() {
  TANDEM_ASSIGN_OR_RETURN(RunDirState state, ReadRunDirState(run_dir_, records_.get()));
  v1::GetStatusResponse status;
  if (records_ != nullptr) {
    TANDEM_RETURN_IF_ERROR(AddNewestStep(*records_, state, status));
    AddRecords(*records_, status);
  }
  status.set_from_files(true);
  status.set_run_id(AsUtf8(state.run_id));
  status.set_run_dir(run_dir_);
  status.set_state(state.state);
  status.set_note(AsUtf8(state.note));
  status.set_error(AsUtf8(state.error));
  status.set_phase(AsUtf8(state.phase));
  status.set_made_step(status.step());
  status.set_as_of(StampText(state.newest_us));
  if (!state.phase.empty()) status.set_phase_began_at(StampText(state.phase_since_us));
  if (state.info) {
    const int64_t ended_us = MicrosOfStamp(state.info->ended_at);
    status.set_total_steps(state.info->total_steps);
    status.set_memory_plan(state.info->memory_plan);
    status.set_ended_at(state.info->ended_at);
    status.set_attempt(state.info->attempt);
    status.set_uptime_seconds(SecondsBetween(MicrosOfStamp(state.info->started_at),
                                             ended_us == 0 ? state.newest_us : ended_us));
  }
  AddCalls(state, status);
  AddLogs(run_dir_, status);
  return status;
}

absl::StatusOr<v1::ListStepsResponse> RunDirView::ListSteps(const v1::ListStepsRequest& request) {
  if (records_ == nullptr) return v1::ListStepsResponse();
  return AnswerSteps(*records_, request);
}

absl::StatusOr<v1::ListSamplesResponse> RunDirView::ListSamples(
    const v1::ListSamplesRequest& request) {
  if (records_ == nullptr) return v1::ListSamplesResponse();
  return AnswerSamples(*records_, request);
}

std::string RunDirView::NoteOnSteps(int64_t first, int64_t last) {
  return records_ == nullptr ? "" : UnsavedStepsText(run_dir_, *records_, first, last);
}

}  // namespace tandem
