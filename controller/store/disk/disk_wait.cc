#include "controller/store/disk/disk_wait.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/disk_refusal.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"

namespace tandem {
namespace {

// How often a wait looks whether the run is to end.
constexpr absl::Duration kLookEvery = absl::Milliseconds(200);
// How often a disk is tried that has less free than is expected to be needed: the expectation may
// be too high.
constexpr absl::Duration kRetryWithoutSpaceEvery = absl::Minutes(1);

int64_t RoundedUpMib(int64_t bytes) { return (bytes + (1 << 20) - 1) >> 20; }

// "64 MiB needed, 3 MiB free"; what is not known is left out.
std::string Sizes(const DiskNeed& need, std::optional<int64_t> free_bytes) {
  std::string sizes =
      need.bytes > 0 ? fmt::format("{} MiB needed", RoundedUpMib(need.bytes)) : "little is needed";
  if (free_bytes) sizes += fmt::format(", {} MiB free", *free_bytes >> 20);
  return sizes;
}

std::string WaitText(const DiskNeed& need,
                     const absl::Status& refused,
                     std::optional<int64_t> free_bytes) {
  const std::string reason(refused.message());
  if (!absl::IsResourceExhausted(refused)) {
    return fmt::format(
        "{} cannot be written to {}, whose disk fails; the run waits and continues when it can: {}",
        need.what, need.folder, reason);
  }
  return fmt::format(
      "no space on {} for {}: {}; the run waits and continues when there is space: {}", need.folder,
      need.what, Sizes(need, free_bytes), reason);
}

}  // namespace

absl::Status DiskWait::Until(const DiskNeed& need, const std::function<absl::Status()>& write) {
  const OutsideWait wait;  // a slow disk is not a hang
  absl::Status status = write();
  if (!IsDiskRefused(status) || ended()) return status;
  const Instant begin = clock_.Now();
  Instant tried = begin;
  std::string told;
  while (IsDiskRefused(status) && !ended()) {
    SetWaitsFor(WaitText(need, status, options_.free_bytes(need.folder)));
    // Once for each reason, not for each attempt.
    if (told != status.message()) Tell(waits_for());
    told = std::string(status.message());
    Pause();
    if (ended()) break;
    if (LacksSpace(need, status) && clock_.Now() - tried < kRetryWithoutSpaceEvery) continue;
    tried = clock_.Now();
    status = write();
  }
  SetWaitsFor("");
  waited_ += clock_.Now() - begin;
  if (IsDiskRefused(status)) {
    return Annotate(status, "the run was stopped while it waited for a disk");
  }
  Tell(fmt::format("{} is written, {:.0f} s after its disk refused it: the run continues",
                   need.what, absl::ToDoubleSeconds(clock_.Now() - begin)));
  return status;
}

bool DiskWait::LacksSpace(const DiskNeed& need, const absl::Status& refused) const {
  if (need.bytes <= 0 || !absl::IsResourceExhausted(refused)) return false;
  const std::optional<int64_t> free_bytes = options_.free_bytes(need.folder);
  return free_bytes && *free_bytes < need.bytes;
}

void DiskWait::Pause() {
  const Instant until = clock_.Now() + options_.retry_every;
  while (!ended() && clock_.Now() < until) {
    clock_.Sleep(std::min(kLookEvery, until - clock_.Now()));
  }
}

std::string DiskWait::waits_for() const {
  const MutexLock lock(wait_mutex_);
  return waits_for_;
}

void DiskWait::SetWaitsFor(const std::string& text) {
  const MutexLock lock(wait_mutex_);
  waits_for_ = text;
}

void DiskWait::Tell(const std::string& text) const {
  LogWarn("{}", text);
  if (options_.tell) options_.tell(text);
}

}  // namespace tandem
