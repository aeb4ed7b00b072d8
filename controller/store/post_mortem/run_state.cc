#include "controller/store/post_mortem/run_state.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/process/directory_lock.h"
#include "common/process/process_identity.h"
#include "controller/store/sqlite/run_reader.h"
#include "controller/store/time_stamp.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// The host that the lock's holder wrote, or "": "a controller, process 17 on HOST".
std::string HostOfHolder(const std::string& run_dir) {
  std::ifstream file(run_dir + "/" + kControllerLock);
  std::string text;
  std::getline(file, text);
  const size_t at = text.rfind(" on ");
  return at == std::string::npos ? "" : text.substr(at + 4);
}

// What the blackbox says of the newest controller.
struct NewestStart {
  std::optional<BlackboxRecord> record;    // of the start
  RunOutcome outcome = RunOutcome::kNone;  // kNone: no end was noted
  std::string error;                       // of the end
};

RunOutcome OutcomeOfCode(int code) {
  const bool known = code >= 0 && static_cast<size_t>(code) < kRunOutcomeNames.size();
  return known ? static_cast<RunOutcome>(code) : RunOutcome::kUnknown;
}

NewestStart Gather(const std::vector<BlackboxRecord>& records, RunDirState& state) {
  NewestStart start;
  std::map<std::string, LastCall> calls;
  for (const BlackboxRecord& record : records) {
    state.newest_us = std::max(state.newest_us, record.time_us);
    switch (record.kind) {
      case BlackboxKind::kStart:
        start = {.record = record};
        state.phase.clear();
        calls.clear();
        break;
      case BlackboxKind::kPhase:
        state.phase = record.text;
        state.phase_step = record.step;
        state.phase_since_us = record.time_us;
        break;
      case BlackboxKind::kEnd:
        start.outcome = OutcomeOfCode(record.code);
        start.error = record.text;
        state.phase.clear();
        break;
      case BlackboxKind::kCall:
        calls[record.worker] = {.worker = record.worker,
                                .method = record.text,
                                .step = record.step,
                                .began_us = record.time_us};
        break;
      case BlackboxKind::kAnswer: {
        LastCall& call = calls[record.worker];
        // Of several calls at a time, the one that began last is shown until it is answered.
        if (call.method != record.text) {
          if (call.answered_us == 0 && call.began_us != 0) break;
          call = {.worker = record.worker, .method = record.text, .step = record.step};
        }
        call.answered_us = record.time_us;
        call.code = record.code;
        break;
      }
    }
  }
  for (auto& [worker, call] : calls) state.calls.push_back(std::move(call));
  return start;
}

// For a start of which neither run.db nor the blackbox has an end.
void DescribeKilled(const std::string& run_dir, RunDirState& state) {
  const std::string host = HostOfHolder(run_dir);
  if (!host.empty() && host != HostName()) {
    state.state = "unknown";
    state.note = fmt::format(
        "its controller ran on {}, and whether it still does is not seen from here: ask it with "
        "--address, or run this command there",
        host);
    return;
  }
  if (DirectoryLock::IsHeld(run_dir, kLauncherLock)) {
    state.state = "restarting";
    state.note = "its controller is gone, and the launcher starts it again";
    return;
  }
  state.state = "killed";
  state.note = "no controller runs, and none noted an end: it was killed, or its host stopped";
}

// For a start of which run.db has no end: the blackbox may have one.
void DescribeUnrecorded(const std::string& run_dir,
                        const NewestStart& start,
                        const char* note,
                        RunDirState& state) {
  if (start.outcome == RunOutcome::kNone) {
    DescribeKilled(run_dir, state);
    return;
  }
  state.state = RunOutcomeName(start.outcome);
  state.error = start.error;
  state.note = start.outcome == RunOutcome::kUnknown
                   ? "its controller left without telling an outcome: its log in logs/ says more"
                   : note;
}

void DescribeRecorded(const std::string& run_dir,
                      const NewestStart& start,
                      const RunInfo& info,
                      RunDirState& state) {
  if (info.outcome == RunOutcome::kNone) {
    DescribeUnrecorded(run_dir, start,
                       "its end could not be recorded in run.db, and is known from the blackbox",
                       state);
    return;
  }
  state.state = RunOutcomeName(info.outcome);
  state.error = info.error;
  if (info.outcome == RunOutcome::kUnknown) {
    state.note = "the build that wrote run.db recorded no ends of runs";
  }
}

}  // namespace

absl::StatusOr<RunDirState> ReadRunDirState(const std::string& run_dir, SqliteRunReader* records) {
  RunDirState state;
  // Before what the files say: a run that ends meanwhile is told by its records then.
  const bool running = DirectoryLock::IsHeld(run_dir, kControllerLock);
  const auto box = ReadBlackbox(run_dir + "/blackbox");
  const NewestStart start = box.ok() ? Gather(*box, state) : NewestStart{};
  if (records != nullptr) {
    absl::StatusOr<RunInfo> info = records->NewestRun();
    if (!info.ok() && !absl::IsNotFound(info.status())) return info.status();
    if (info.ok()) state.info = *std::move(info);
  }
  const bool has_records =
      state.info && (!start.record || IsStartOf(*start.record, state.info->run_id));
  if (has_records) {
    state.run_id = state.info->run_id;
  } else if (start.record) {
    state.run_id = start.record->text;
  }
  if (state.info) {
    state.newest_us = std::max({state.newest_us, MicrosOfStamp(state.info->started_at),
                                MicrosOfStamp(state.info->ended_at)});
  }
  if (running) {
    state.state = "running";
    if (!has_records) state.note = "it starts: nothing of it is recorded yet";
  } else if (has_records) {
    DescribeRecorded(run_dir, start, *state.info, state);
  } else {
    DescribeUnrecorded(run_dir, start, "it ended before it recorded anything", state);
  }
  return state;
}

namespace {

constexpr int64_t kTailBytes = 16 << 10;

LogTail TailOf(const fs::path& path, size_t lines) {
  LogTail tail{.file = path.filename()};
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  const auto bytes = static_cast<int64_t>(file.tellg());
  file.seekg(std::max<int64_t>(0, bytes - kTailBytes));
  for (std::string line; std::getline(file, line);) tail.lines.push_back(line);
  if (tail.lines.size() > lines) {
    tail.lines.erase(tail.lines.begin(), tail.lines.end() - static_cast<std::ptrdiff_t>(lines));
  }
  return tail;
}

}  // namespace

std::vector<LogTail> ReadLogTails(const std::string& run_dir, size_t lines) {
  std::vector<LogTail> tails;
  std::error_code error;
  // A loop over the range would throw where the folder can be read no further.
  for (fs::directory_iterator entry(run_dir + "/logs", error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unknown;  // a pipe would be waited for
    if (entry->path().extension() != ".log" || !entry->is_regular_file(unknown)) continue;
    tails.push_back(TailOf(entry->path(), lines));
  }
  std::sort(tails.begin(), tails.end(),
            [](const auto& a, const auto& b) { return a.file < b.file; });
  return tails;
}

}  // namespace tandem
