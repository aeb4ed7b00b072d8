// For tests of kernels that were written for the emulator, which computes in host memory.
#pragma once

#include <functional>
#include <string>

namespace tandem::testing {

// From now on `new` gives pinned memory, which the GPU reads and writes at the host's addresses.
// What was allocated before stays where it is, as do constants and the stacks of other threads.
// Called once. Aborts without a GPU; does nothing in a program over the emulator.
void UsePinnedHeap();

// Calls `run` on a thread whose stack is pinned memory as well, as tests give kernels pointers to
// their own variables, and returns what it returns. Over the emulator it is called here.
int RunOnPinnedStack(const std::function<int()>& run);

// Waits for the GPU; why no kernel can run on it any more, "" where one can. An access to an
// address that the GPU cannot reach, for example, ends all work of the process. Always "" over the
// emulator.
std::string DeviceError();

// Whether a launch returns when the kernel has ended, as tests expect that read and free operands
// without waiting. Of the program: not where graphs are captured, which that may not allow.
extern const bool kBlockingLaunches;

}  // namespace tandem::testing
