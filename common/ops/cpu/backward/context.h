// The state that the parts of the CPU's backward ops share: kernels, threads, and scratch memory
// that two parts use one after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/cpu/workspace.h"
#include "common/ops/ops_types.h"
#include "common/process/threads.h"
#include "common/types/tensor_view.h"

namespace tandem {

// Panels that one task rearranges.
inline constexpr int64_t kPackPanels = 4;

struct CpuBackwardContext {
  CpuBackwardContext(DType compute_dtype,
                     const KernelSet& kernel_set,
                     std::shared_ptr<ThreadPool> threads);

  int64_t workspace_bytes() const;
  std::byte* Row(Matrix matrix, int64_t row, int64_t col = 0) const {
    return static_cast<std::byte*>(matrix.data) + (row * matrix.stride + col) * element_bytes;
  }
  void Round(FloatMatrix in, Matrix out) const;
  // Columns of `matrix` as panels in `workspace`; all threads pack them.
  std::byte* PackColumns(Matrix matrix, Workspace& workspace) const;
  // dweight [dout_cols, in_cols] += the product of two sets of column panels over `rows`.
  void AddWeightProduct(const std::byte* dout_columns,
                        int64_t dout_cols,
                        const std::byte* in_columns,
                        int64_t in_cols,
                        int64_t rows,
                        float* dweight) const;
  // Runs body(first, last) over ranges of columns in whole cache lines, for sums over rows.
  template <typename Body>
  void ParallelColumns(int64_t cols, const Body& body) const {
    constexpr int64_t kColumnGrain = 64;
    const int64_t tasks = (cols + kColumnGrain - 1) / kColumnGrain;
    pool->ParallelFor(tasks, [&](int64_t task, int) {
      body(task * kColumnGrain, std::min(cols, (task + 1) * kColumnGrain));
    });
  }

  const DType dtype;
  const int64_t element_bytes;
  const KernelSet& kernels;
  const std::shared_ptr<ThreadPool> pool;
  std::vector<Workspace> thread_scratch;  // one per pool thread: attention and logits
  // For linear layers and logits: a transposed weight, and the operands of a weight gradient.
  Workspace weight_panels, in_panels, dout_panels;
};

}  // namespace tandem
