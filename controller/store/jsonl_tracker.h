// One JSON object per step and line: {"step": 3, "data": {"actor/lr": 1e-06, ...}}, the format of
// verl's file tracker.
#pragma once

#include <fstream>
#include <mutex>
#include <string>

#include "controller/store/tracker.h"

namespace tandem {

class JsonlTracker : public Tracker {
 public:
  // Appends to `path`; its folder must exist.
  explicit JsonlTracker(std::string path);

  void Log(int64_t step, const Metrics& metrics) override;
  // Rewrites the file without lines of later steps and without what a kill left of a line.
  void Rewind(int64_t step) override;
  void Flush() override;

 private:
  void Report();

  const std::string path_;
  std::mutex mutex_;
  std::ofstream file_;
  bool reported_ = false;
};

}  // namespace tandem
