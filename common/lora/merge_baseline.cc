#include "common/lora/merge_loops.h"

namespace tandem {

const MergeKernel kMergeBaseline = {"baseline", Merge};

}  // namespace tandem
