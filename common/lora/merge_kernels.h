// The loops of MergeRows for each instruction set; all give the same bits.
#pragma once

#include <vector>

#include "common/lora/merge.h"

namespace tandem {

struct MergeKernel {
  const char* name;
  void (*merge)(const MergeBlock& block);  // denormals as the calling thread has them
};

extern const MergeKernel kMergeAvx512, kMergeAvx2, kMergeBaseline;
// The loops that this machine can run, fastest first; tests compare all of them.
const std::vector<const MergeKernel*>& RunnableMergeKernels();

}  // namespace tandem
