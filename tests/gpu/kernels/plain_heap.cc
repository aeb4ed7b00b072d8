#include "tests/gpu/kernels/pinned_heap.h"

namespace tandem::testing {

// The emulator computes in host memory.
void UsePinnedHeap() {}
int RunOnPinnedStack(const std::function<int()>& run) { return run(); }
std::string DeviceError() { return ""; }

}  // namespace tandem::testing
