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
  // What comes next follows `step`: anything logged of later steps (by a process before this one,
  // or before a recovery went back) is void. -1: everything is.
  virtual void Rewind(int64_t step) = 0;
  // Hands everything to the operating system.
  virtual void Flush() = 0;
};

}  // namespace tandem
