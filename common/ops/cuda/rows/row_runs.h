// Groups rows by the row they are added to: rows of equal id are added together and in ascending
// order, so that a sum has one owner and one order, without atomics.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

struct RowRun {
  int32_t id = 0;
  int32_t first = 0, last = 0;  // indices into `order`
};

struct RowRuns {
  std::vector<int32_t> order;  // rows sorted by id, rows of one id ascending
  std::vector<RowRun> runs;    // ids ascending, each once
};

RowRuns GroupRows(const int32_t* ids, int64_t rows);

}  // namespace tandem
