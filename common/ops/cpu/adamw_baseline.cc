#include "common/ops/cpu/adamw_loops.h"

namespace tandem {

const AdamWKernels kAdamWBaseline = {"baseline", Update, RoundAll, LaneSquares};

}  // namespace tandem
