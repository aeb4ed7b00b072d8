#include "common/ops/backward_ops.h"

#include "common/base/check.h"

namespace tandem {

void BackwardOps::AdapterWeights(Matrix /*dout*/,
                                 Matrix /*in*/,
                                 const LinearWeight& weight,
                                 const LinearAdapterGradients& /*gradients*/) {
  TANDEM_CHECK(weight.adapter.parts == 0, "these ops take no adapters");
}

}  // namespace tandem
