// Scalars for TensorBoard: one event file per process start.
#pragma once

#include <fstream>
#include <mutex>
#include <string>

#include "common/base/clock.h"
#include "controller/store/tracker.h"

namespace tandem {

class TensorBoardTracker : public Tracker {
 public:
  // Makes `dir` and a file events.out.tfevents.<seconds>.<host> in it. `clock` must outlive it.
  TensorBoardTracker(const std::string& dir, Clock& clock);

  void Log(int64_t step, const Metrics& metrics) override;
  // A session start at `step` + 1, upon which TensorBoard drops what it has from that step on.
  void Rewind(int64_t step) override;
  void Flush() override;

  const std::string& path() const { return path_; }

 private:
  void Write(const std::string& event);

  Clock& clock_;
  std::string path_;
  std::mutex mutex_;
  std::ofstream file_;
  bool reported_ = false;
};

}  // namespace tandem
