// Spreads one product over the pool: tasks are rectangles of rows and panels, never parts of k.
#pragma once

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/process/thread_pool.h"

namespace tandem {

// C [rows, call.n] of `call`, all of it.
void RunGemm(ThreadPool& pool, const KernelSet& kernels, const GemmCall& call, int64_t rows);

}  // namespace tandem
