#include "tests/bench/load/measured_process.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include <absl/time/clock.h>
#include <fmt/format.h>
#include <unistd.h>

namespace tandem::testing {

MeasuredProcess::MeasuredProcess(pid_t pid) : pid_(pid) {
  looks_ = NamedThread("process looks", [this] {
    while (!over_) {
      const ProcessUse now = Look();
      {
        const MutexLock lock(most_mutex_);
        most_ = {.resident_bytes = std::max(most_.resident_bytes, now.resident_bytes),
                 .threads = std::max(most_.threads, now.threads),
                 .descriptors = std::max(most_.descriptors, now.descriptors)};
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
  });
}

MeasuredProcess::~MeasuredProcess() {
  over_ = true;
  looks_.Join();
}

double MeasuredProcess::CpuSeconds() const {
  std::ifstream file(fmt::format("/proc/{}/stat", pid_));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  text.erase(0, text.rfind(')') + 1);  // the name may have blanks
  std::istringstream fields(text);
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

ProcessUse MeasuredProcess::TakeMost() {
  const ProcessUse now = Look();
  const MutexLock lock(most_mutex_);
  ProcessUse most = most_;
  most_ = now;
  return most.threads == 0 ? now : most;
}

ProcessUse MeasuredProcess::Look() const {
  ProcessUse use;
  std::ifstream file(fmt::format("/proc/{}/status", pid_));
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    int64_t value = 0;
    fields >> name >> value;
    if (name == "VmRSS:") use.resident_bytes = value << 10;
    if (name == "Threads:") use.threads = value;
  }
  std::error_code error;  // of a process that has just ended
  const std::filesystem::directory_iterator open(fmt::format("/proc/{}/fd", pid_), error);
  if (!error) use.descriptors = std::distance(begin(open), end(open));
  return use;
}

}  // namespace tandem::testing
