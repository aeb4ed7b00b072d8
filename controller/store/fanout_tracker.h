// Hands every record to all trackers.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "controller/store/tracker.h"

namespace tandem {

class FanoutTracker : public Tracker {
 public:
  explicit FanoutTracker(std::vector<std::unique_ptr<Tracker>> trackers)
      : trackers_(std::move(trackers)) {}

  void Log(int64_t step, const Metrics& metrics) override {
    for (const auto& tracker : trackers_) tracker->Log(step, metrics);
  }
  void Rewind(int64_t step) override {
    for (const auto& tracker : trackers_) tracker->Rewind(step);
  }
  void Flush() override {
    for (const auto& tracker : trackers_) tracker->Flush();
  }

 private:
  const std::vector<std::unique_ptr<Tracker>> trackers_;
};

}  // namespace tandem
