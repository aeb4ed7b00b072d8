#include "controller/cli/find_controller.h"

#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSocketName = "controller.sock";

struct NewestSocket {
  fs::path path;
  fs::file_time_type time = fs::file_time_type::min();

  void Consider(const fs::path& run_dir) {
    std::error_code error;
    const fs::path socket = run_dir / kSocketName;
    if (!fs::exists(socket, error)) return;
    const auto written = fs::last_write_time(socket, error);
    if (error || written < time) return;
    path = socket;
    time = written;
  }
};

// As the end of a message; empty where nothing is there.
std::string WhatARunLeft(const std::string& run_dir) {
  std::vector<std::string> left;
  for (const auto& [name, what] :
       {std::pair{"report.html", "the report"}, std::pair{"run.db", "steps and samples, SQLite"},
        std::pair{"metrics.jsonl", "metrics by step"}}) {
    std::error_code error;
    const fs::path path = fs::path(run_dir) / name;
    if (fs::exists(path, error)) left.push_back(fmt::format("{} ({})", path.string(), what));
  }
  if (left.empty()) return "";
  return fmt::format("; what a run has left there: {}", fmt::join(left, ", "));
}

}  // namespace

absl::Status WithWhatIsLeft(absl::Status status, const std::string& run_dir) {
  if (!absl::IsUnavailable(status) || run_dir.empty()) return status;
  return absl::Status(status.code(), std::string(status.message()) + WhatARunLeft(run_dir));
}

absl::StatusOr<std::string> FindController(const std::string& address,
                                           const std::string& run_dir,
                                           const std::string& runs_root) {
  if (!address.empty()) return address;
  std::error_code error;
  if (!run_dir.empty()) {
    const fs::path socket = fs::absolute(run_dir) / kSocketName;
    if (fs::exists(socket, error)) return "unix:" + socket.string();
    return MakeStatus(absl::StatusCode::kNotFound,
                      "no controller is running in {}: {} does not exist{}", run_dir,
                      socket.string(), WhatARunLeft(run_dir));
  }
  // Runs lie at runs_root/PROJECT/EXPERIMENT, or directly below runs_root.
  NewestSocket newest;
  for (const auto& child : fs::directory_iterator(runs_root, error)) {
    newest.Consider(child.path());
    std::error_code no_directory;
    for (const auto& grandchild : fs::directory_iterator(child.path(), no_directory)) {
      newest.Consider(grandchild.path());
    }
  }
  if (!newest.path.empty()) return "unix:" + fs::absolute(newest.path).string();
  return MakeStatus(absl::StatusCode::kNotFound,
                    "no running controller found under {}/: start one with ./deploy/launch.sh "
                    "CONFIG, or name it with --address or --run-dir",
                    runs_root);
}

}  // namespace tandem
