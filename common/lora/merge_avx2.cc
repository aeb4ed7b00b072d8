#include "common/lora/merge_loops.h"

namespace tandem {

const MergeKernel kMergeAvx2 = {"avx2", Merge};

}  // namespace tandem
