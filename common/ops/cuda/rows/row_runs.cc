#include "common/ops/cuda/rows/row_runs.h"

#include <algorithm>
#include <numeric>

namespace tandem {

RowRuns GroupRows(const int32_t* ids, int64_t rows) {
  RowRuns grouped;
  grouped.order.resize(static_cast<size_t>(rows));
  std::iota(grouped.order.begin(), grouped.order.end(), 0);
  std::stable_sort(grouped.order.begin(), grouped.order.end(),
                   [ids](int32_t a, int32_t b) { return ids[a] < ids[b]; });
  for (int32_t i = 0; i < rows; ++i) {
    const int32_t id = ids[grouped.order[static_cast<size_t>(i)]];
    if (grouped.runs.empty() || grouped.runs.back().id != id) grouped.runs.push_back({id, i, i});
    grouped.runs.back().last = i + 1;
  }
  return grouped;
}

}  // namespace tandem
