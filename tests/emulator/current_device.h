// Which device a thread has chosen of an emulated driver, and which one a stream belongs to.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/status.h>

#include "common/device/cuda/launch.h"

namespace tandem::emulator {

// A number for each driver: what a thread chose of one that is gone means nothing to the next.
uint64_t NewDriver();
void ChooseDevice(uint64_t driver, int device);
bool HasChosenDevice(uint64_t driver);
// Of this thread; 0 where it chose none.
int CurrentDevice(uint64_t driver);

// What a block may have of shared memory on a device.
struct SharedLimit {
  std::string architecture;  // "sm_80"
  int64_t bytes = 0;         // with what a kernel asks for (cudaFuncSetAttribute)
};
// Of compute capability 8.0 to 12.x; aborts for another one.
SharedLimit SharedLimitOf(int compute_major, int compute_minor);
// Of the stream's device; sm_80's for a stream that belongs to no driver, as in a kernel's own
// test.
SharedLimit SharedLimitOf(CudaStream stream);

void BindStream(CudaStream stream, uint64_t driver, int device, const SharedLimit& shared);
void UnbindStream(CudaStream stream);
// OK, or why this thread may not launch kernels on the stream: its device is another one, or lost.
absl::Status CheckDevice(CudaStream stream);
void MarkLost(uint64_t driver, const absl::Status& why);
// The first error of this thread's launches since it was taken.
void KeepLaunchError(const absl::Status& status);
absl::Status TakeLaunchError();

}  // namespace tandem::emulator
