// The changes that a start makes in the run directory, once its workers are up.
#pragma once

#include <string>

#include <absl/status/status.h>

#include "common/config/config.h"
#include "controller/partial_rollout/round_journal.h"
#include "controller/run/resume_point.h"
#include "controller/store/checkpoint_index.h"
#include "controller/store/disk/disk_wait.h"
#include "controller/store/progress.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "controller/store/trackers/trackers.h"

namespace tandem {

// All must outlive the call.
struct TakeoverParts {
  const v1::Config& config;
  const ResumePoint& start;
  const std::string& launch_id;  // see ResumeOptions
  SqliteRunStore& records;       // keeps nothing yet, if the whole earlier run is set aside
  CheckpointIndex& checkpoints;
  FanoutTracker& tracker;  // has no trackers yet
  RoundJournal* journal;   // null without partial rollout
  ProgressSink& progress;
  DiskWait& disk;
  bool log_json = false;  // see AssemblyOptions
};

// Moves what the run does not continue out of its way (EarlierRun), opens the files that it writes
// instead, and records that the directory belongs to this launch. Until then a start that fails, or
// is given up, leaves an earlier run as it was. Waits for a disk that is full or fails (DiskWait):
// each step can be repeated, and does again only what is left. Errors as SettleStore,
// EarlierRun::Move, SqliteRunStore::Open and RoundJournal::Clear.
absl::Status TakeOverRunDir(const TakeoverParts& parts);

// RUN_DIR/run.db
std::string RecordsPath(const v1::Config& config);

}  // namespace tandem
