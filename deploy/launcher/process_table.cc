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
  for (const auto& [id, pid] : pids_) kill(-pid, SIGKILL);
  for (const auto& [id, pid] : pids_) waitpid(pid, nullptr, 0);
}

absl::Status ProcessTable::Spawn(const ProcessId& id) {
  ChildOptions options{.argv = CommandLine(plan_, id),
                       .env = Environment(plan_, id),
                       .log_path = LogPath(plan_, id),
                       .inherit_stdout = id.role == Role::kController};
  if (!log_begin_.contains(id)) {
    std::error_code none;
    const auto bytes = std::filesystem::file_size(options.log_path, none);
    log_begin_[id] = none ? 0 : static_cast<int64_t>(bytes);
  }
  TANDEM_ASSIGN_OR_RETURN(pids_[id], SpawnChild(options));
  ++starts_[id];
  WritePids();
  return absl::OkStatus();
}

std::string ProcessTable::LastLogLines(const ProcessId& id, int lines) const {
  const auto begin = log_begin_.find(id);
  return LastLines(LogPath(plan_, id), lines, begin == log_begin_.end() ? 0 : begin->second);
}

void ProcessTable::Signal(const ProcessId& id, int signal) {
  const auto it = pids_.find(id);
  if (it != pids_.end()) kill(signal == SIGKILL ? -it->second : it->second, signal);
}

std::vector<ProcessId> ProcessTable::KillHung() {
  std::vector<ProcessId> killed;
  for (const auto& [id, pid] : pids_) {
    const std::string path =
        fmt::format("{}/hung/{}-{}", plan_.run_dir, RoleName(id.role), id.rank);
    std::ifstream file(path);
    if (!file) continue;
    pid_t named = 0;
    // A file about an earlier process of that rank, or from another launcher, is only removed.
    if (file >> named && named == pid) {
      Signal(id, SIGKILL);
      killed.push_back(id);
    }
    std::remove(path.c_str());
  }
  return killed;
}

std::optional<std::pair<ProcessId, ProcessExit>> ProcessTable::Reap() {
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    for (const auto& [id, known] : pids_) {
      if (known != pid) continue;
      ProcessExit exit;
      if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
      if (WIFEXITED(status)) exit.code = WEXITSTATUS(status);
      const ProcessId dead = id;
      kill(-pid, SIGKILL);  // also ends processes that the child started
      pids_.erase(dead);
      WritePids();
      return std::pair(dead, exit);
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
  std::vector<std::string> rows;
  for (const auto& [id, pid] : pids_) {
    rows.push_back(fmt::format(R"(  {{"role": "{}", "rank": {}, "pid": {}, "starts": {}}})",
                               RoleName(id.role), id.rank, pid, starts_.at(id)));
  }
  const std::string path = plan_.run_dir + "/pids.json";
  std::ofstream(path + ".new") << fmt::format("{{\"launcher\": {}, \"processes\": [\n{}\n]}}\n",
                                              getpid(), fmt::join(rows, ",\n"));
  std::rename((path + ".new").c_str(), path.c_str());
}

}  // namespace tandem
