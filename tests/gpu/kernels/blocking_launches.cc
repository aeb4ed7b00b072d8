#include "tests/gpu/kernels/pinned_heap.h"

namespace tandem::testing {

const bool kBlockingLaunches = true;

}  // namespace tandem::testing
