// For tests of kernels that were written for the emulator, which computes in host memory.
#pragma once

namespace tandem::testing {

// From now on `new` gives pinned memory, which the GPU reads and writes at the host's addresses.
// What was allocated before stays where it is, as do stacks and constants. Called once. Aborts
// without a GPU; does nothing in a program over the emulator.
void UsePinnedHeap();

// Whether a launch returns when the kernel has ended, as tests expect that read and free operands
// without waiting. Of the program: not where graphs are captured, which that may not allow.
extern const bool kBlockingLaunches;

}  // namespace tandem::testing
