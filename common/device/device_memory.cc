#include "common/device/device_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/process/fault_injection.h"

namespace tandem {
namespace {

// The number after `key` in a file of "Key:   N kB" lines, in bytes; 0 if it is not there.
int64_t KilobytesOf(const std::string& file, const std::string& key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (line.compare(0, key.size(), key) != 0) continue;
    std::istringstream fields(line.substr(key.size()));
    int64_t kilobytes = 0;
    fields >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

// A file with one number; nullopt if it is missing or says "max".
std::optional<int64_t> NumberIn(const std::string& file) {
  std::ifstream in(file);
  int64_t value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

struct CgroupFiles {
  std::string limit, usage, stat;
  std::string reclaimable;  // the line of `stat` that counts page cache
};

// The memory files of every cgroup from this process's own up to the root; in a container its own
// may be mounted as the root, so that only the last entries exist.
std::vector<CgroupFiles> MemoryCgroups() {
  std::vector<CgroupFiles> all;
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    const std::string mount = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    std::string path = line.substr(second + 1);
    while (true) {
      const std::string dir = mount + (path == "/" ? "" : path);
      if (v2) {
        all.push_back(
            {dir + "/memory.max", dir + "/memory.current", dir + "/memory.stat", "inactive_file "});
      } else {
        all.push_back({dir + "/memory.limit_in_bytes", dir + "/memory.usage_in_bytes",
                       dir + "/memory.stat", "total_inactive_file "});
      }
      if (path.empty() || path == "/") break;
      path = path.substr(0, path.rfind('/'));
    }
  }
  return all;
}

int64_t StatLine(const std::string& file, const std::string& key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (line.compare(0, key.size(), key) == 0) return std::stoll(line.substr(key.size()));
  }
  return 0;
}

}  // namespace

ProcessMemory ReadProcessMemory() {
  ProcessMemory memory;
  memory.resident = KilobytesOf("/proc/self/status", "VmRSS:");
  memory.peak_resident = KilobytesOf("/proc/self/status", "VmHWM:");
  return memory;
}

void ResetProcessPeak() {
  // "5" sets VmHWM back to VmRSS (proc(5)).
  std::ofstream("/proc/self/clear_refs") << "5";
}

int64_t MemoryLimitBytes() {
  int64_t limit = KilobytesOf("/proc/meminfo", "MemTotal:");
  for (const CgroupFiles& cgroup : MemoryCgroups()) {
    const std::optional<int64_t> value = NumberIn(cgroup.limit);
    if (value && *value > 0) limit = std::min(limit, *value);
  }
  return limit;
}

int64_t AvailableMemoryBytes() {
  int64_t available = KilobytesOf("/proc/meminfo", "MemAvailable:");
  for (const CgroupFiles& cgroup : MemoryCgroups()) {
    const std::optional<int64_t> limit = NumberIn(cgroup.limit);
    const std::optional<int64_t> usage = NumberIn(cgroup.usage);
    if (!limit || !usage) continue;
    const int64_t used = *usage - StatLine(cgroup.stat, cgroup.reclaimable);
    available = std::min(available, std::max<int64_t>(0, *limit - used));
  }
  return available;
}

int64_t CpuDeviceMemoryBytes(int devices) { return MemoryLimitBytes() / std::max(1, devices); }

void InjectBitFlip(Device* device, const char* point, void* byte) {
  if (!FaultFlips(point)) return;
  unsigned char held = 0;
  device->Copy(&held, byte, 1);
  absl::Status copied = device->Synchronize();
  held ^= 1;
  device->Copy(byte, &held, 1);
  copied.Update(device->Synchronize());
  TANDEM_CHECK(copied.ok(), std::string("TANDEM_FAULT at ") + point + ": " + copied.ToString());
}

}  // namespace tandem
