#include "common/ops/cpu/kernels_table.h"

namespace tandem {

const KernelSets& KernelsAvx512Bf16() {
  static constexpr KernelSets kSets = {MakeKernelSet<BfloatBits>("avx512bf16"),
                                       MakeKernelSet<float>("avx512bf16")};
  return kSets;
}

}  // namespace tandem
