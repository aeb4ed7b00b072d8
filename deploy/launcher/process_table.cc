#include "deploy/launcher/process_table.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/status.h"
#include "deploy/launcher/child_process.h"

namespace tandem {

ProcessTable::~ProcessTable() {
  for (const auto& [id, child] : children_) {
    if (child.pid != 0) kill(-child.pid, SIGKILL);
  }
  for (const auto& [id, child] : children_) {
    if (child.pid != 0) waitpid(child.pid, nullptr, 0);
  }
}

absl::Status ProcessTable::Spawn(const ProcessId& id) {
  ChildOptions options{.argv = CommandLine(plan_, id),
                       .env = Environment(plan_, id),
                       .log_path = LogPath(plan_, id),
                       .inherit_stdout = id.role == Role::kController};
  Child& child = children_[id];
  if (child.starts == 0) {
    std::error_code none;
    const auto bytes = std::filesystem::file_size(options.log_path, none);
    child.log_begin = none ? 0 : static_cast<int64_t>(bytes);
  }
  TANDEM_ASSIGN_OR_RETURN(child.pid, SpawnChild(options));
  ++child.starts;
  WritePids();
  return absl::OkStatus();
}

pid_t ProcessTable::PidOf(const ProcessId& id) const {
  const auto child = children_.find(id);
  return child == children_.end() ? 0 : child->second.pid;
}

std::string ProcessTable::LastLogLines(const ProcessId& id, int lines) const {
  const auto child = children_.find(id);
  return LastLines(LogPath(plan_, id), lines,
                   child == children_.end() ? 0 : child->second.log_begin);
}

void ProcessTable::Signal(const ProcessId& id, int signal) {
  const pid_t pid = PidOf(id);
  if (pid != 0) kill(signal == SIGKILL ? -pid : pid, signal);
}

bool ProcessTable::KillIfStill(const ProcessId& id, pid_t pid) {
  if (pid == 0 || PidOf(id) != pid) return false;
  Signal(id, SIGKILL);
  return true;
}

std::vector<ProcessId> ProcessTable::KillHung() {
  std::vector<ProcessId> killed;
  for (const auto& [id, child] : children_) {
    if (child.pid == 0) continue;
    const std::string path =
        fmt::format("{}/hung/{}-{}", plan_.run_dir, RoleName(id.role), id.rank);
    std::ifstream file(path);
    if (!file) continue;
    pid_t named = 0;
    // A file about an earlier process of that rank, or from another launcher, is only removed.
    if (file >> named && KillIfStill(id, named)) killed.push_back(id);
    std::remove(path.c_str());
  }
  return killed;
}

std::optional<std::pair<ProcessId, ProcessExit>> ProcessTable::Reap() {
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    for (auto& [id, child] : children_) {
      if (child.pid != pid) continue;
      ProcessExit exit;
      if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
      if (WIFEXITED(status)) exit.code = WEXITSTATUS(status);
      kill(-pid, SIGKILL);  // also ends processes that the child started
      child.pid = 0;
      child.ended_pid = pid;
      child.exit = exit;
      WritePids();
      return std::pair(id, exit);
    }
  }
  return std::nullopt;
}

bool ProcessTable::KillStrays() {
  // The launcher is the subreaper of its descendants, so remaining processes are its children by
  // now.
  const std::string path = fmt::format("/proc/self/task/{}/children", getpid());
  std::ifstream file(path);
  bool none = true;
  for (pid_t pid = 0; file >> pid;) {
    none = false;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  return none;
}

void ProcessTable::WritePids() const {
  if (plan_.pids_file.empty()) return;
  std::vector<std::string> rows;
  for (const auto& [id, child] : children_) {
    if (child.pid == 0) continue;
    rows.push_back(fmt::format(R"(  {{"role": "{}", "rank": {}, "pid": {}, "starts": {}}})",
                               RoleName(id.role), id.rank, child.pid, child.starts));
  }
  const std::string path = plan_.pids_file + ".new";
  std::ofstream(path) << fmt::format("{{\"launcher\": {}, \"processes\": [\n{}\n]}}\n", getpid(),
                                     fmt::join(rows, ",\n"));
  std::rename(path.c_str(), plan_.pids_file.c_str());
}

}  // namespace tandem
