// ForwardOps on a CPU: cuts every op into row or column tasks for the pool and calls the kernels.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/ops/cpu/attention_plan.h"
#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/cpu/sample_row.h"
#include "common/ops/cpu/workspace.h"
#include "common/ops/forward_ops.h"
#include "common/process/threads.h"

namespace tandem {

class CpuForwardOps final : public ForwardOps {
 public:
  CpuForwardOps(DType compute_dtype, const KernelSet& kernels, std::shared_ptr<ThreadPool> pool);

  DType compute_dtype() const override { return dtype_; }
  WeightFormat weight_format() const override { return WeightFormat::kPanels; }
  std::string numerics_class() const override;
  std::string kernel_set() const override { return kernels_.name; }
  const OpCounts& counts() const override { return counts_; }
  int64_t workspace_bytes() const override;

#define TANDEM_FORWARD_OP(op, name, parameters, arguments) void op parameters override;
#include "common/ops/forward_ops.def"

 private:
  std::byte* Row(Matrix matrix, int64_t row) const {
    return static_cast<std::byte*>(matrix.data) + row * matrix.stride * element_bytes_;
  }
  // The product for the logits of some rows of `hidden` and one vocabulary chunk, of which the
  // first `cols` columns are needed.
  GemmCall ChunkGemm(Matrix hidden, const LinearWeight& head, int64_t chunk, int64_t cols) const;
  // Statistics [rows, chunks] of all logits at temperature(row), where T = 0 counts as 1. Calls
  // visit(row, chunk, logits of the chunk) on any thread.
  template <typename Temperature, typename Visit>
  ChunkStats* ScoreChunks(Matrix hidden,
                          const LinearWeight& head,
                          int64_t vocab_limit,
                          const Temperature& temperature,
                          const Visit& visit);
  // A row of Sample whose token has not been chosen yet.
  struct Draw {
    int64_t row;
    RowStats stats;
    ChunkChoice choice;  // for filtered rows, a chunk after the last
  };
  // Draws the tokens of rows whose token is in one chunk; runs on one thread, with that thread's
  // workspace.
  void DrawInChunk(std::span<const Draw> draws,
                   Matrix hidden,
                   const LinearWeight& head,
                   int64_t vocab_limit,
                   const std::vector<SampleRow>& rows,
                   Workspace& workspace,
                   SampledToken* out);
  // Draws the tokens of rows that need all their logits; uses the pool.
  void DrawFiltered(std::span<const Draw> draws,
                    Matrix hidden,
                    const LinearWeight& head,
                    int64_t vocab_limit,
                    const std::vector<SampleRow>& rows,
                    SampledToken* out);
  // Copies the rows of `hidden` that belong to `draws`, dense.
  Matrix GatherRows(Matrix hidden, std::span<const Draw> draws, std::byte* to);

  // Rows of a span whose keys and values are stored by one thread.
  struct StoreRun {
    const AttentionSpan* span;
    int64_t first, last;
  };

  const DType dtype_;
  const int64_t element_bytes_;
  const KernelSet& kernels_;
  const std::shared_ptr<ThreadPool> pool_;
  std::vector<Workspace> thread_scratch_;  // one per pool thread
  Workspace logits_, gathered_;            // of filtered rows
  Workspace chunk_stats_;
  Workspace adapter_rows_;   // A x of a product's adapters
  Workspace dropped_;        // inputs of adapters after dropout, some rows at a time
  std::vector<Draw> draws_;  // by chunk
  std::vector<size_t>
      draw_groups_;  // where each task's draws begin, and the end of the last task's
  AttentionPlan attention_;
  std::vector<StoreRun> store_runs_;
  OpCounts counts_;
};

}  // namespace tandem
