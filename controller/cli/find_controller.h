// Which controller a command means.
#pragma once

#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tandem {

// `address` if given; else the socket of `run_dir` if given; else the socket of the newest run
// under `runs_root` (runs_root/PROJECT/EXPERIMENT or runs_root/RUN). NotFound says what was looked
// for and how to name a controller.
absl::StatusOr<std::string> FindController(const std::string& address,
                                           const std::string& run_dir,
                                           const std::string& runs_root);

// How a call to a controller went; where nobody answered (Unavailable) with the files that the run
// in `run_dir` (empty: none was named) has left and that can be read without one, as FindController
// says where it finds no socket.
absl::Status WithWhatIsLeft(absl::Status status, const std::string& run_dir);

}  // namespace tandem
