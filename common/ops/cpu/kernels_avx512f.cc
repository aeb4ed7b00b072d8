#include "common/ops/cpu/kernels_table.h"

namespace tandem {

const KernelSets& KernelsAvx512() {
  static constexpr KernelSets kSets = {MakeKernelSet<BfloatBits>("avx512f"),
                                       MakeKernelSet<float>("avx512f")};
  return kSets;
}

}  // namespace tandem
