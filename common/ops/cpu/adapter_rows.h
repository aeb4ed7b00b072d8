// The first half of adapters that are not merged, shared by forward and backward: t = A x.
#pragma once

#include "common/ops/cpu/kernel_set.h"
#include "common/ops/cpu/thread_pool.h"
#include "common/ops/ops_types.h"

namespace tandem {

// t [in.rows, parts * rank] = in [rows, K] A_iᵀ of all parts, side by side, fp32: the sums of
// Linear, not rounded. `t` has room for it.
void ProjectToRank(ThreadPool& pool,
                   const KernelSet& kernels,
                   int64_t element_bytes,
                   Matrix in,
                   const LinearWeight& weight,
                   float* t);

// What the GEMM of `weight` adds to its sums, given t.
AdapterSums AdapterSumsOf(const LinearWeight& weight, const float* t, int64_t element_bytes);

}  // namespace tandem
