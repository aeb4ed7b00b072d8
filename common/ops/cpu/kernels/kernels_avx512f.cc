#include "common/ops/cpu/kernels/kernels_table.h"

namespace tandem {

const KernelSets& KernelsAvx512() {
  static constexpr KernelSets kSets = {MakeKernelSet<BfloatBits>("avx512f", "seq"),
                                       MakeKernelSet<float>("avx512f", "seq")};
  return kSets;
}

}  // namespace tandem
