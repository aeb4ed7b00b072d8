#include "common/ops/cpu/kernels/adamw_loops.h"

namespace tandem {

const AdamWKernels kAdamWAvx2 = {"avx2", Update, RoundAll, LaneSquares};

}  // namespace tandem
