// verl's console line: "step:3 - actor/lr:1e-06 - ...".
#pragma once

#include <mutex>
#include <ostream>

#include "controller/store/tracker.h"

namespace tandem {

class ConsoleTracker : public Tracker {
 public:
  // `out` must outlive the tracker.
  explicit ConsoleTracker(std::ostream& out) : out_(out) {}

  void Log(int64_t step, const Metrics& metrics) override;
  void Rewind(int64_t) override {}  // what was printed stays
  void Flush() override;

 private:
  std::mutex mutex_;
  std::ostream& out_;
};

}  // namespace tandem
