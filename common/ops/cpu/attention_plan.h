// Groups the rows of an attention call so that the rows of a group pass over keys and values
// together. This affects speed only: a row's result does not depend on its group.
#pragma once

#include <vector>

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/ops_types.h"

namespace tandem {

// Keeps its memory between calls. One thread plans; any thread may then ask for tasks.
class AttentionPlan {
 public:
  // Long spans are split into runs of rows. Single rows of sequences that begin with the same
  // blocks, such as samples of one prompt during decoding, are grouped, in whichever order they are
  // given; `threads` limits the size of groups so that every thread has work.
  void Plan(const std::vector<AttentionSpan>& spans, const AttentionShape& shape, int threads);

  int64_t groups() const { return static_cast<int64_t>(groups_.size()); }
  // The task points into the plan.
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
