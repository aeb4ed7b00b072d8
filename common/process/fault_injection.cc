#include "common/process/fault_injection.h"

#include <climits>
#include <csignal>
#include <cstdlib>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mutex.h"

namespace tandem {
namespace {

struct Fault {
  std::string point;
  int countdown = 1;
  int signal = SIGKILL;  // kFlip: a bit is flipped instead
  std::string marker;
};

constexpr int kFlip = 0;

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
  LogWarn("TANDEM_FAULT: signal {} at {}", fault.signal, fault.point);
  kill(getpid(), fault.signal);
}

int ParseAction(const std::string& action) {
  if (action == "kill") return SIGKILL;
  if (action == "stop") return SIGSTOP;
  return action == "flip" ? kFlip : -1;
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
                          absl::SimpleAtoi(parts[3], &nth) && ParseAction(parts[4]) >= 0;
    TANDEM_CHECK(readable,
                 "TANDEM_FAULT is not role:rank:point:nth:kill|stop|flip:marker: " + spec);
    if (parts[0] != role || fault_rank != rank) continue;
    faults.list.push_back(
        {.point = parts[2], .countdown = nth, .signal = ParseAction(parts[4]), .marker = parts[5]});
  }
  faults.any = !faults.list.empty();
}

void FaultPoint(const char* point) {
  Faults& faults = AllFaults();
  if (!faults.any) return;
  const MutexLock lock(faults.list_mutex);
  for (Fault& fault : faults.list) {
    if (fault.signal == kFlip || fault.point != point) continue;
    if (--fault.countdown == 0) Fire(fault);
  }
}

bool FaultFlips(const char* point) {
  Faults& faults = AllFaults();
  if (!faults.any) return false;
  const MutexLock lock(faults.list_mutex);
  bool flips = false;
  for (Fault& fault : faults.list) {
    if (fault.signal != kFlip || fault.point != point) continue;
    // A fault that fired in an earlier process never counts down to zero again.
    if (--fault.countdown == 0 && !CreateMarker(fault)) fault.countdown = INT_MAX;
    flips = flips != (fault.countdown <= 0);  // two flips cancel each other
  }
  return flips;
}

}  // namespace tandem
