#include "common/ops/cpu/kernels/kernels_table.h"

namespace tandem {

const KernelSets& KernelsAvx512Bf16() {
  static constexpr KernelSets kSets = {MakeKernelSet<BfloatBits>("avx512bf16", "seq"),
                                       MakeKernelSet<float>("avx512bf16", "seq")};
  return kSets;
}

}  // namespace tandem
