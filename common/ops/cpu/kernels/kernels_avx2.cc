#include "common/ops/cpu/kernels/kernels_table.h"

namespace tandem {

const KernelSets& KernelsAvx2() {
  static constexpr KernelSets kSets = {MakeKernelSet<BfloatBits>("avx2", "seq"),
                                       MakeKernelSet<float>("avx2", "seq")};
  return kSets;
}

}  // namespace tandem
