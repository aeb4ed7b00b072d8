// The first half of adapters that are not merged, shared by forward and backward: t = A x.
#pragma once

#include <functional>

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/cpu/workspace.h"
#include "common/ops/ops_types.h"
#include "common/process/threads.h"

namespace tandem {

// t [in.rows, parts * rank] = in [rows, K] A_iᵀ of all parts, side by side, fp32: the sums of
// Linear, not rounded. `t` has room for it. With dropout part i takes the elements of `in` that it
// keeps, and the sums are scaled; columns of a part without an adapter are undefined then.
// `dropped` is used with dropout alone.
void ProjectToRank(ThreadPool& pool,
                   const KernelSet& kernels,
                   int64_t element_bytes,
                   Matrix in,
                   const LinearWeight& weight,
                   Workspace& dropped,
                   float* t);

// With dropout: visit(first row, part, `in` from there as part `part` takes it, not scaled) for
// some rows after the other, ascending, and for every part that has an adapter, descending.
void EachKept(ThreadPool& pool,
              int64_t element_bytes,
              Matrix in,
              const LinearAdapter& adapter,
              Workspace& dropped,
              const std::function<void(int64_t first, int part, Matrix kept)>& visit);

// What the GEMM of `weight` adds to its sums, given t.
AdapterSums AdapterSumsOf(const LinearWeight& weight, const float* t, int64_t element_bytes);

}  // namespace tandem
