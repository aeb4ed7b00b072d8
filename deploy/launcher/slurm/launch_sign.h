// A file by which agents see whether the launcher of their job still runs, on whatever node.
#pragma once

#include <atomic>
#include <string>

#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/process/threads.h"

namespace tandem {

// Writes the file anew every few seconds while it lives, from a thread of its own.
class LaunchSign {
 public:
  // In a folder that all nodes share.
  explicit LaunchSign(std::string path);
  ~LaunchSign();
  LaunchSign(const LaunchSign&) = delete;
  LaunchSign& operator=(const LaunchSign&) = delete;

 private:
  const std::string path_;
  std::atomic<bool> over_ = false;
  NamedThread thread_;
};

// How long a launcher has to show that it runs: several times the pause between two signs, for a
// file system that shows changes late.
inline constexpr absl::Duration kLaunchSignPatience = absl::Seconds(60);

// Whether the file changes within kLaunchSignPatience, or is not there: its launcher runs, or has
// ended the run itself. Blocks until it knows, by `clock`, whose Sleep it calls.
bool LaunchIsInCharge(const std::string& path, Clock& clock);

}  // namespace tandem
