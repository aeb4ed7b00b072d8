// The destinations of a run's metrics.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "common/base/mutex.h"
#include "controller/store/record_file.h"

namespace tandem {

using Metrics = std::map<std::string, double>;

// Thread-safe. Log never blocks a step for long and never fails a run: records that a disk refuses
// are held back, others that cannot be written are dropped (RecordFile).
class Tracker {
 public:
  virtual ~Tracker() = default;

  virtual void Log(int64_t step, const Metrics& metrics) = 0;
  // Marks records of steps after `step` as undone: they were logged by an earlier process, or
  // before a recovery went back. -1: all. After an error, by IoErrorCode and marked where a disk is
  // the reason, everything is as before: the call may be made again.
  virtual absl::Status Rewind(int64_t step) = 0;
  // Passes all data that is buffered or held back to the operating system. A disk's refusal
  // (disk_refusal.h) is the only error, and loses nothing.
  virtual absl::Status Flush() = 0;
};

// Passes every record to all trackers.
class FanoutTracker : public Tracker {
 public:
  explicit FanoutTracker(std::vector<std::unique_ptr<Tracker>> trackers)
      : trackers_(std::move(trackers)) {}

  // Replaces the trackers. For a run whose files exist only once its workers are up; no other
  // thread may use the object yet.
  void Use(std::vector<std::unique_ptr<Tracker>> trackers) { trackers_ = std::move(trackers); }

  void Log(int64_t step, const Metrics& metrics) override {
    for (const auto& tracker : trackers_) tracker->Log(step, metrics);
  }
  // After the error of one, a further call marks the others again, which changes nothing.
  absl::Status Rewind(int64_t step) override {
    absl::Status first;
    for (const auto& tracker : trackers_) first.Update(tracker->Rewind(step));
    return first;
  }
  absl::Status Flush() override {
    absl::Status first;
    for (const auto& tracker : trackers_) first.Update(tracker->Flush());
    return first;
  }

 private:
  std::vector<std::unique_ptr<Tracker>> trackers_;
};

// verl's console line: "step:3 - actor/lr:1e-06 - ...".
class ConsoleTracker : public Tracker {
 public:
  // `out` must outlive the tracker.
  explicit ConsoleTracker(std::ostream& out) : out_(out) {}

  void Log(int64_t step, const Metrics& metrics) override;
  // Lines that were printed stay.
  absl::Status Rewind(int64_t) override { return absl::OkStatus(); }
  absl::Status Flush() override;

 private:
  Mutex out_mutex_;
  std::ostream& out_ ABSL_GUARDED_BY(out_mutex_);
};

// One JSON object per step and line: {"step": 3, "data": {"actor/lr": 1e-06, ...}}, the format of
// verl's file tracker.
class JsonlTracker : public Tracker {
 public:
  // Appends to `path`; its folder must exist.
  explicit JsonlTracker(std::string path);

  void Log(int64_t step, const Metrics& metrics) override;
  // Moves lines of later steps to the end of UndonePath, and drops an incomplete line left by a
  // kill. Where there are none, no file is written. A process that is killed meanwhile may leave
  // them in both files.
  absl::Status Rewind(int64_t step) override;
  absl::Status Flush() override;

  // "metrics.undone.jsonl" for "metrics.jsonl".
  static std::string UndonePath(const std::string& path);

 private:
  const std::string path_;
  Mutex file_mutex_;
  RecordFile file_ ABSL_GUARDED_BY(file_mutex_);
};

}  // namespace tandem
