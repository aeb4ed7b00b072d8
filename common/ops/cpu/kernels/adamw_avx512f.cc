#include "common/ops/cpu/kernels/adamw_loops.h"

namespace tandem {

const AdamWKernels kAdamWAvx512 = {"avx512f", Update, RoundAll, LaneSquares};

}  // namespace tandem
