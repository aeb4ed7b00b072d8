#include "common/ops/cpu/kernels/gemm_amx.h"
#include "common/ops/cpu/kernels/kernels_table.h"

namespace tandem {

const KernelSets& KernelsAmx() {
  static constexpr KernelSets kSets = {MakeKernelSet<BfloatBits>("amx", "amx32"),
                                       MakeKernelSet<float>("amx", "seq")};
  return kSets;
}

}  // namespace tandem
