#include "common/process/fault_injection.h"

#include <climits>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <absl/time/clock.h>
#include <absl/time/time.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mutex.h"

namespace tandem {
namespace {

enum class FaultAction { kKill, kStop, kExit, kFlip, kSlow, kHang, kWait };

constexpr absl::Duration kSlowness = absl::Milliseconds(500);
constexpr absl::Duration kWaitStep = absl::Milliseconds(5);

struct Fault {
  std::string point;
  int countdown = 1;
  FaultAction action = FaultAction::kKill;
  std::string marker;
};

struct Faults {
  Mutex list_mutex;
  std::vector<Fault> list ABSL_GUARDED_BY(list_mutex);  // of this process
  bool any = false;                                     // written before threads start
};

Faults& AllFaults() {
  static Faults faults;
  return faults;
}

// Creates the marker; false if it exists, because the fault fired in an earlier process.
bool CreateMarker(const Fault& fault) {
  const int fd = open(fault.marker.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  close(fd);
  return true;
}

void Fire(const Fault& fault) {
  if (!CreateMarker(fault)) return;
  if (fault.action == FaultAction::kExit) {
    LogWarn("TANDEM_FAULT: exit at {}", fault.point);
    _exit(1);
  }
  const int signal = fault.action == FaultAction::kStop ? SIGSTOP : SIGKILL;
  LogWarn("TANDEM_FAULT: signal {} at {}", signal, fault.point);
  kill(getpid(), signal);
}

// Whether the fault acts at this visit and at all later ones of this life of the process. A fault
// that fired in an earlier process never counts down to zero again.
bool ActsFromHereOn(Fault& fault) {
  if (--fault.countdown == 0 && !CreateMarker(fault)) fault.countdown = INT_MAX;
  return fault.countdown <= 0;
}

std::optional<FaultAction> ParseAction(const std::string& action) {
  if (action == "kill") return FaultAction::kKill;
  if (action == "stop") return FaultAction::kStop;
  if (action == "exit") return FaultAction::kExit;
  if (action == "wait") return FaultAction::kWait;
  if (action == "flip") return FaultAction::kFlip;
  if (action == "hang") return FaultAction::kHang;
  if (action == "slow") return FaultAction::kSlow;
  return std::nullopt;
}

}  // namespace

void InitFaultPoints(const std::string& role, int rank) {
  const char* text = std::getenv("TANDEM_FAULT");
  if (text == nullptr || *text == '\0') return;
  Faults& faults = AllFaults();
  const MutexLock lock(faults.list_mutex);
  for (const std::string& spec : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::vector<std::string> parts = absl::StrSplit(spec, absl::MaxSplits(':', 5));
    int fault_rank = 0, nth = 0;
    const bool readable = parts.size() == 6 && absl::SimpleAtoi(parts[1], &fault_rank) &&
                          absl::SimpleAtoi(parts[3], &nth) && ParseAction(parts[4]).has_value();
    TANDEM_CHECK(
        readable,
        "TANDEM_FAULT is not role:rank:point:nth:kill|stop|exit|hang|wait|flip|slow:marker: " +
            spec);
    if (parts[0] != role || fault_rank != rank) continue;
    faults.list.push_back({.point = parts[2],
                           .countdown = nth,
                           .action = *ParseAction(parts[4]),
                           .marker = parts[5]});
  }
  faults.any = !faults.list.empty();
}

void FaultPoint(const char* point) {
  Faults& faults = AllFaults();
  if (!faults.any) return;
  bool slow = false, hang = false;
  std::vector<std::string> awaited;
  {
    const MutexLock lock(faults.list_mutex);
    for (Fault& fault : faults.list) {
      if (fault.action == FaultAction::kFlip || fault.point != point) continue;
      if (fault.action == FaultAction::kSlow) {
        slow = ActsFromHereOn(fault) || slow;
      } else if (fault.action == FaultAction::kHang) {
        hang = (--fault.countdown == 0 && CreateMarker(fault)) || hang;
      } else if (fault.action == FaultAction::kWait) {
        if (--fault.countdown == 0 && CreateMarker(fault)) awaited.push_back(fault.marker + ".go");
      } else if (--fault.countdown == 0) {
        Fire(fault);
      }
    }
  }
  if (slow) absl::SleepFor(kSlowness);
  if (hang) LogWarn("TANDEM_FAULT: hanging at {}", point);
  while (hang) pause();
  for (const std::string& file : awaited) {
    LogWarn("TANDEM_FAULT: waiting at {} for {}", point, file);
    while (access(file.c_str(), F_OK) != 0) absl::SleepFor(kWaitStep);
  }
}

bool FaultFlips(const char* point) {
  Faults& faults = AllFaults();
  if (!faults.any) return false;
  const MutexLock lock(faults.list_mutex);
  bool flips = false;
  for (Fault& fault : faults.list) {
    if (fault.action != FaultAction::kFlip || fault.point != point) continue;
    flips = flips != ActsFromHereOn(fault);  // two flips cancel each other
  }
  return flips;
}

}  // namespace tandem
