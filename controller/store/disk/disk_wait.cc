#include "controller/store/disk/disk_wait.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "common/base/disk_refusal.h"
#include "common/base/log.h"
#include "common/base/status.h"

namespace tandem {
namespace {

// How often a wait looks whether the run is to end.
constexpr absl::Duration kLookEvery = absl::Milliseconds(200);

int64_t RoundedUpMib(int64_t bytes) { return (bytes + (1 << 20) - 1) >> 20; }

// "64 MiB needed, 3 MiB free"; what is not known is left out.
std::string Sizes(const DiskNeed& need) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(need.folder, error);
  std::string sizes =
      need.bytes > 0 ? fmt::format("{} MiB needed", RoundedUpMib(need.bytes)) : "little is needed";
  if (!error) sizes += fmt::format(", {} MiB free", space.available >> 20);
  return sizes;
}

std::string WaitText(const DiskNeed& need, const absl::Status& refused) {
  const std::string reason(refused.message());
  if (!absl::IsResourceExhausted(refused)) {
    return fmt::format(
        "{} cannot be written to {}, whose disk fails; the run waits and goes on when it can: {}",
        need.what, need.folder, reason);
  }
  return fmt::format("no space on {} for {}: {}; the run waits and goes on when there is space: {}",
                     need.folder, need.what, Sizes(need), reason);
}

}  // namespace

absl::Status DiskWait::Until(const DiskNeed& need, const std::function<absl::Status()>& write) {
  absl::Status status = write();
  if (!IsDiskRefused(status) || ended()) return status;
  const Instant begin = clock_.Now();
  std::string told;
  while (IsDiskRefused(status) && !ended()) {
    SetWaitsFor(WaitText(need, status));
    // Once for each reason, not for each attempt.
    if (told != status.message()) Tell(waits_for());
    told = std::string(status.message());
    Pause();
    if (!ended()) status = write();
  }
  SetWaitsFor("");
  if (IsDiskRefused(status)) {
    return Annotate(status, "the run was stopped while it waited for a disk");
  }
  Tell(fmt::format("{} is written, {:.0f} s after its disk refused it: the run goes on", need.what,
                   absl::ToDoubleSeconds(clock_.Now() - begin)));
  return status;
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
