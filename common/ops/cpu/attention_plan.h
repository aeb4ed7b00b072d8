// How the rows of an attention call are cut into groups that pass over keys and values together.
// Speed only: a row's result does not depend on its group.
#pragma once

#include <vector>

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/ops_types.h"

namespace tandem {

// Holds its memory from call to call. One thread plans; tasks may then be asked for by any.
class AttentionPlan {
 public:
  // Long spans are cut into runs of rows. Single rows of sequences that begin with the same blocks,
  // as the samples of one prompt do while they are decoded, are put together, in any order they
  // come in; `threads` limits how many, for every thread to have work.
  void Plan(const std::vector<AttentionSpan>& spans, const AttentionShape& shape, int threads);

  int64_t groups() const { return static_cast<int64_t>(groups_.size()); }
  // Points into the plan.
  AttentionTask Task(int64_t group, int64_t kv_head) const;

 private:
  struct Group {
    size_t first;
    int64_t count;
    int64_t shared_tiles;
  };
  void AddRuns(const AttentionSpan& span, int64_t rows);
  void AddDecodeRows(int64_t most);

  std::vector<AttentionRows> rows_;
  std::vector<Group> groups_;
  std::vector<const AttentionSpan*> decode_;  // spans of one row
};

}  // namespace tandem
