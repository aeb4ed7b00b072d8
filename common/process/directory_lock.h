// One process at a time in a directory.
#pragma once

#include <string>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/process/local_socket.h"

namespace tandem {

// Of a run directory: who drives the run, and who starts its processes.
inline constexpr const char* kControllerLock = "controller.lock";
inline constexpr const char* kLauncherLock = "launcher.lock";

// Held until it is destroyed or the process ends, however that ends: the kernel keeps the lock, and
// a file that is left says nothing. The file names its holder, for the message to the next one.
class DirectoryLock {
 public:
  // Makes `directory` where it is missing and locks `directory`/`name`; waits up to `wait` for a
  // holder that is about to end. `holder` says who this is ("controller"), `remedy` what to do
  // where the directory is taken. AlreadyExists: taken; the message names the holder's process,
  // host and remedy. Otherwise by IoErrorCode.
  static absl::StatusOr<DirectoryLock> Take(const std::string& directory,
                                            const std::string& name,
                                            const std::string& holder,
                                            const std::string& remedy,
                                            absl::Duration wait = absl::ZeroDuration(),
                                            Clock& clock = RealClock());
  // Whether a process holds `directory`/`name` now. Takes nothing and makes nothing.
  static bool IsHeld(const std::string& directory, const std::string& name);

 private:
  explicit DirectoryLock(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace tandem
