#include "controller/ctl/find_controller.h"

#include <filesystem>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSocketName = "controller.sock";

}  // namespace

absl::StatusOr<std::string> FindController(const std::string& address,
                                           const std::string& run_dir,
                                           const std::string& runs_root) {
  if (!address.empty()) return address;
  std::error_code error;
  if (!run_dir.empty()) {
    const fs::path socket = fs::absolute(run_dir) / kSocketName;
    if (fs::exists(socket, error)) return "unix:" + socket.string();
    return MakeStatus(absl::StatusCode::kNotFound,
                      "no controller is running in {}: {} does not exist", run_dir,
                      socket.string());
  }
  fs::path newest;
  fs::file_time_type newest_time = fs::file_time_type::min();
  for (const auto& entry : fs::directory_iterator(runs_root, error)) {
    const fs::path socket = entry.path() / kSocketName;
    if (!fs::exists(socket, error)) continue;
    const auto time = fs::last_write_time(socket, error);
    if (error || time < newest_time) continue;
    newest = socket;
    newest_time = time;
  }
  if (!newest.empty()) return "unix:" + fs::absolute(newest).string();
  return MakeStatus(absl::StatusCode::kNotFound,
                    "no running controller found under {}/: start one with ./deploy/launch.sh "
                    "CONFIG, or name it with --address or --run-dir",
                    runs_root);
}

}  // namespace tandem
