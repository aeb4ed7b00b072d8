// Which rows are added to which: rows of equal id, together and ascending, so that a sum has one
// owner and one order, without atomics.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

struct RowRun {
  int32_t id = 0;
  int32_t first = 0, last = 0;  // of the order
};

struct RowRuns {
  std::vector<int32_t> order;  // rows, by id, rows of one id ascending
  std::vector<RowRun> runs;    // ids ascending, each once
};

RowRuns GroupRows(const int32_t* ids, int64_t rows);

}  // namespace tandem
