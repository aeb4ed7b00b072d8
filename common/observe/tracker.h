// Where the numbers of a run go.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tandem {

using Metrics = std::map<std::string, double>;

// Thread-safe. Never blocks a step for long and never fails a run: what cannot be written is
// reported once in the log and dropped.
class Tracker {
 public:
  virtual ~Tracker() = default;

  virtual void Log(int64_t step, const Metrics& metrics) = 0;
  // Hands everything to the operating system.
  virtual void Flush() = 0;
};

}  // namespace tandem
