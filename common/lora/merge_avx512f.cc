#include "common/lora/merge_loops.h"

namespace tandem {

const MergeKernel kMergeAvx512 = {"avx512f", Merge};

}  // namespace tandem
