#include "common/ops/cpu/kernels/gemm_amx_emulated.h"
#include "common/ops/cpu/kernels/kernels_table.h"

namespace tandem {

const KernelSets& KernelsAmxEmulated() {
  static constexpr KernelSets kSets = {MakeKernelSet<BfloatBits>("amx-emulated", "amx32"),
                                       MakeKernelSet<float>("amx-emulated", "seq")};
  return kSets;
}

}  // namespace tandem
