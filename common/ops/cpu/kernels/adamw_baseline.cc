#include "common/ops/cpu/kernels/adamw_loops.h"

namespace tandem {

const AdamWKernels kAdamWBaseline = {"baseline", Update, RoundAll, LaneSquares};

}  // namespace tandem
