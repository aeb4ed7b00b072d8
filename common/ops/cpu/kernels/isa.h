// Chooses the kernel set of this process.
#pragma once

#include <absl/status/statusor.h>

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/types/tensor_view.h"

namespace tandem {

// The fastest set on this machine, or the one that TANDEM_CPU_ISA names (amx, avx512bf16, avx512f,
// avx2, amx-emulated). FailedPrecondition names missing features, InvalidArgument an unknown name
// or dtype.
absl::StatusOr<const KernelSet*> ChooseKernels(DType compute_dtype);

}  // namespace tandem
