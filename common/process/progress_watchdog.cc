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

std::optional<absl::Duration> StallDetector::Look(const EngineProgress& progress, Instant now) {
  if (progress.steps != steps_ || !progress.work_due) {
    steps_ = progress.steps;
    moved_at_ = now;
  }
  const absl::Duration still = now - moved_at_;
  return still < limit_ ? std::nullopt : std::optional(still);
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
  StallDetector detector(limit_);
  const auto pause = absl::ToChronoMilliseconds(std::min(kLookEvery, limit_ / 4));
  const MutexLock lock(stop_mutex_);
  while (!stopping_) {
    (void)stop_.WaitUntil(stop_mutex_, std::chrono::steady_clock::now() + pause);
    const EngineProgress progress = CurrentProgress();
    const auto still = detector.Look(progress, RealClock().Now());
    if (!still) continue;
    WriteThreadStacks(STDERR_FILENO);
    LogError(
        "{}: no progress for {}, {} (cluster.progress_timeout_seconds); its threads' stacks are "
        "above. Ending, to be started anew.",
        name_, absl::FormatDuration(*still), progress.Text());
    std::_Exit(kExitInternal);
  }
}

}  // namespace tandem
