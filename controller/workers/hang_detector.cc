#include "controller/workers/hang_detector.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "common/base/log.h"

namespace tandem {

void HangDetector::Poll() {
  std::vector<WorkerEntry> lost = registry_.Workers(WorkerChoice::kLostAndRestored);
  std::erase_if(lost, [](const auto& worker) { return worker.state != WorkerEntry::State::kLost; });
  // One that came back may hang again.
  std::erase_if(requested_, [&lost](const auto& request) {
    return std::none_of(lost.begin(), lost.end(), [&request](const WorkerEntry& worker) {
      return worker.key() == request.first;
    });
  });
  for (const WorkerEntry& worker : lost) Look(worker);
}

void HangDetector::Look(const WorkerEntry& worker) {
  const bool silent = clock_.Now() - worker.last_heartbeat >= options_.no_heartbeat_for;
  if (!silent && !worker.stands_still) return;
  const auto requested = requested_.find(worker.key());
  if (requested != requested_.end() && requested->second == worker.incarnation) return;
  if (options_.ask_agent && options_.ask_agent(worker)) {
    requested_[worker.key()] = worker.incarnation;
    return Tell(worker, "the agent of " + worker.announcement.host.Text());
  }
  // On another host, or in another container, its number may be some other process's here.
  if (worker.process_start.empty()) return;
  if (worker.restored && worker.held_for <= absl::ZeroDuration()) return;  // it has ended
  requested_[worker.key()] = worker.incarnation;
  Tell(worker, "the launcher");
  Request(worker);
}

void HangDetector::Tell(const WorkerEntry& worker, const std::string& asked) const {
  const std::string silence = absl::FormatDuration(clock_.Now() - worker.last_heartbeat);
  LogWarn(
      "{}: {} (process {}, phase {}, last action {}): asking {} to kill it", worker.key().Text(),
      worker.stands_still ? StandstillText(worker.news.progress) : "no heartbeat for " + silence,
      worker.announcement.pid, worker.news.phase, worker.news.last_action, asked);
}

void HangDetector::Request(const WorkerEntry& worker) {
  const WorkerKey& key = worker.key();
  const std::string directory = options_.run_dir + "/hung";
  const std::string path = fmt::format("{}/{}-{}", directory, RoleName(key.role), key.rank);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  // Written under another name and renamed, because the launcher may read the file at any moment.
  std::ofstream(path + ".new") << worker.announcement.pid << "\n";
  std::filesystem::rename(path + ".new", path, error);
  if (error) LogWarn("cannot write {}: {}; kill that process", path, error.message());
}

}  // namespace tandem
