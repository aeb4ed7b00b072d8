#include "tests/emulator/current_device.h"

#include <atomic>
#include <map>
#include <utility>

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace tandem::emulator {
namespace {

struct Home {
  uint64_t driver = 0;
  int device = 0;
  SharedLimit shared;
};

std::atomic<uint64_t> drivers;
Mutex device_mutex;
std::map<CudaStream, Home> homes ABSL_GUARDED_BY(device_mutex);
std::map<uint64_t, absl::Status> lost ABSL_GUARDED_BY(device_mutex);  // by driver

thread_local std::map<uint64_t, int> chosen;  // by driver
thread_local absl::Status launch_error;

}  // namespace

uint64_t NewDriver() { return ++drivers; }

void ChooseDevice(uint64_t driver, int device) { chosen[driver] = device; }

bool HasChosenDevice(uint64_t driver) { return chosen.contains(driver); }

int CurrentDevice(uint64_t driver) {
  const auto found = chosen.find(driver);
  return found == chosen.end() ? 0 : found->second;
}

// Programming guide of CUDA 13, "Technical Specifications per Compute Capability": the most shared
// memory of a thread block.
SharedLimit SharedLimitOf(int compute_major, int compute_minor) {
  const int version = compute_major * 10 + compute_minor;
  int64_t kibibytes = 0;
  switch (version) {
    case 80:
    case 87:
      kibibytes = 163;
      break;
    case 86:
    case 89:
    case 120:
    case 121:
      kibibytes = 99;
      break;
    case 90:
    case 100:
    case 103:
    case 110:
      kibibytes = 227;
      break;
    default:
      break;
  }
  TANDEM_CHECK(kibibytes > 0, fmt::format("sm_{}: how much shared memory a block has there is not "
                                          "known; add it to SharedLimitOf",
                                          version));
  return {fmt::format("sm_{}", version), kibibytes << 10};
}

SharedLimit SharedLimitOf(CudaStream stream) {
  const MutexLock lock(device_mutex);
  const auto home = homes.find(stream);
  return home == homes.end() ? SharedLimitOf(8, 0) : home->second.shared;
}

void BindStream(CudaStream stream, uint64_t driver, int device, const SharedLimit& shared) {
  const MutexLock lock(device_mutex);
  homes[stream] = {driver, device, shared};
}

void UnbindStream(CudaStream stream) {
  const MutexLock lock(device_mutex);
  homes.erase(stream);
}

absl::Status CheckDevice(CudaStream stream) {
  const MutexLock lock(device_mutex);
  const auto home = homes.find(stream);
  if (home == homes.end()) return absl::OkStatus();  // a kernel's own test
  const auto gone = lost.find(home->second.driver);
  if (gone != lost.end()) return gone->second;
  const int mine = CurrentDevice(home->second.driver);
  if (mine == home->second.device) return absl::OkStatus();
  return Internal(
      "cudaErrorInvalidResourceHandle: a kernel is launched on a stream of device {} by a thread "
      "whose device is {}",
      home->second.device, mine);
}

void MarkLost(uint64_t driver, const absl::Status& why) {
  const MutexLock lock(device_mutex);
  lost.emplace(driver, why);
}

void KeepLaunchError(const absl::Status& status) { launch_error.Update(status); }

absl::Status TakeLaunchError() { return std::exchange(launch_error, absl::OkStatus()); }

}  // namespace tandem::emulator
