// What has become of a run, from the files in its directory alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "controller/store/post_mortem/blackbox.h"
#include "controller/store/run_store.h"

namespace tandem {

class SqliteRunReader;

// The newest call to a worker.
struct LastCall {
  std::string worker;  // "trainer 0"
  std::string method;
  int64_t step = 0;
  int64_t began_us = 0;     // 0: its begin is not in the blackbox any more
  int64_t answered_us = 0;  // 0: no answer came
  int code = 0;             // absl::StatusCode of the answer
};

struct RunDirState {
  // "running", "finished", "stopped", "failed", "killed"; "restarting": the controller is gone, and
  // a launcher starts it again; "unknown": `note` says why.
  std::string state;
  std::string note;  // a sentence about the state; may be empty
  std::string error;
  std::string run_id;
  std::optional<RunInfo> info;  // of the newest start that has records
  std::string phase;            // of the newest controller; "": between two phases
  int64_t phase_step = 0;
  int64_t phase_since_us = 0;
  int64_t newest_us = 0;        // newest time that the files tell; 0: none
  std::vector<LastCall> calls;  // by worker
};

// Changes nothing. `records` may be null: there is no run.db. Errors as SqliteRunReader.
absl::StatusOr<RunDirState> ReadRunDirState(const std::string& run_dir, SqliteRunReader* records);

// The last `lines` lines of each file run_dir/logs/*.log, by name, of their last 16 KiB.
struct LogTail {
  std::string file;  // "controller-0.log"
  std::vector<std::string> lines;
};
std::vector<LogTail> ReadLogTails(const std::string& run_dir, size_t lines);

}  // namespace tandem
