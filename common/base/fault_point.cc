#include "common/base/fault_point.h"

#include <csignal>
#include <cstdlib>
#include <mutex>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/log.h"

namespace tandem {
namespace {

struct Fault {
  std::string point;
  int countdown = 1;
  int signal = SIGKILL;
  std::string marker;
};

struct Faults {
  std::mutex mutex;
  std::vector<Fault> list;  // of this process
  bool any = false;         // written before threads start
};

Faults& AllFaults() {
  static Faults faults;
  return faults;
}

void Fire(const Fault& fault) {
  const int fd = open(fault.marker.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return;  // it has fired in an earlier life
  close(fd);
  spdlog::warn("TANDEM_FAULT: signal {} at {}", fault.signal, fault.point);
  kill(getpid(), fault.signal);
}

}  // namespace

void InitFaultPoints(const std::string& role, int rank) {
  const char* text = std::getenv("TANDEM_FAULT");
  if (text == nullptr || *text == '\0') return;
  for (const std::string& spec : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::vector<std::string> parts = absl::StrSplit(spec, absl::MaxSplits(':', 5));
    int fault_rank = 0, nth = 0;
    const bool readable = parts.size() == 6 && absl::SimpleAtoi(parts[1], &fault_rank) &&
                          absl::SimpleAtoi(parts[3], &nth) &&
                          (parts[4] == "kill" || parts[4] == "stop");
    TANDEM_CHECK(readable, "TANDEM_FAULT is not role:rank:point:nth:kill|stop:marker: " + spec);
    if (parts[0] != role || fault_rank != rank) continue;
    AllFaults().list.push_back({.point = parts[2],
                                .countdown = nth,
                                .signal = parts[4] == "kill" ? SIGKILL : SIGSTOP,
                                .marker = parts[5]});
  }
  AllFaults().any = !AllFaults().list.empty();
}

void FaultPoint(const char* point) {
  Faults& faults = AllFaults();
  if (!faults.any) return;
  std::lock_guard lock(faults.mutex);
  for (Fault& fault : faults.list) {
    if (fault.point == point && --fault.countdown == 0) Fire(fault);
  }
}

}  // namespace tandem
