#include "tests/gpu/kernels/pinned_heap.h"

namespace tandem::testing {

void UsePinnedHeap() {}  // the emulator computes in host memory

}  // namespace tandem::testing
