#include "common/process/progress_watchdog.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include <unistd.h>

#include "common/base/log.h"
#include "common/process/exit_code.h"
#include "common/process/thread_stacks.h"

namespace tandem {
namespace {
constexpr absl::Duration kLookEvery = absl::Seconds(1);
}  // namespace

std::optional<Standstill> StandstillMeter::Look(const std::vector<ThreadProgress>& threads,
                                                Instant now) {
  std::map<int64_t, Seen> before;
  before.swap(seen_);
  std::optional<Standstill> longest;
  for (const ThreadProgress& progress : threads) {
    const auto known = before.find(progress.thread);
    const bool still =
        progress.work_due && known != before.end() && known->second.moves == progress.moves;
    const Instant moved_at = still ? known->second.moved_at : now;
    seen_[progress.thread] = {progress.moves, moved_at};
    const absl::Duration time = now - moved_at;
    if (progress.work_due && (!longest || time > longest->time)) longest = {progress, time};
  }
  return longest;
}

ProgressWatchdog::ProgressWatchdog(std::string name, absl::Duration limit)
    : name_(std::move(name)), limit_(limit), watcher_("progress", [this] { Watch(); }) {}

ProgressWatchdog::~ProgressWatchdog() {
  {
    const MutexLock lock(stop_mutex_);
    stopping_ = true;
  }
  stop_.NotifyAll();
  watcher_.Join();
}

void ProgressWatchdog::Watch() {
  StandstillMeter meter;
  const auto pause = absl::ToChronoMilliseconds(std::min(kLookEvery, limit_ / 4));
  const MutexLock lock(stop_mutex_);
  while (!stopping_) {
    (void)stop_.WaitUntil(stop_mutex_, std::chrono::steady_clock::now() + pause);
    const auto still = meter.Look(CurrentProgress(), RealClock().Now());
    if (!still || still->time < limit_) continue;
    WriteThreadStacks(STDERR_FILENO);
    LogError(
        "{}: no progress for {}, {} (cluster.progress_timeout_seconds); the stacks of all threads "
        "are above. Exiting, to be restarted.",
        name_, absl::FormatDuration(still->time), still->progress.Text());
    std::_Exit(kExitInternal);
  }
}

}  // namespace tandem
