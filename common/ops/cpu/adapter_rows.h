// The first half of separate adapters, shared by forward and backward: t = A x.
#pragma once

#include <functional>

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/cpu/workspace.h"
#include "common/ops/ops_types.h"
#include "common/process/threads.h"

namespace tandem {

// t [in.rows, parts * rank] = in [rows, K] A_iᵀ for all parts, side by side, in fp32: sums as in
// Linear, not rounded. `t` must have room for it. With dropout, part i uses the elements of `in`
// that it keeps, the sums are scaled, and columns of a part without an adapter are undefined.
// `dropped` is used only with dropout.
void ProjectToRank(ThreadPool& pool,
                   const KernelSet& kernels,
                   int64_t element_bytes,
                   Matrix in,
                   const LinearWeight& weight,
                   Workspace& dropped,
                   float* t);

// With dropout: calls visit(first row, part, the rows of `in` from there with the elements that
// `part` keeps, not scaled) for blocks of rows in ascending order and, in each, for every part with
// an adapter in descending order.
void EachKept(ThreadPool& pool,
              int64_t element_bytes,
              Matrix in,
              const LinearAdapter& adapter,
              Workspace& dropped,
              const std::function<void(int64_t first, int part, Matrix kept)>& visit);

// What the GEMM of `weight` adds to its sums for the given t.
AdapterSums AdapterSumsOf(const LinearWeight& weight, const float* t, int64_t element_bytes);

}  // namespace tandem
