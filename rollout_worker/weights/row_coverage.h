// Which rows of a tensor have come.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace tandem {

class RowCoverage {
 public:
  // Marks [row, row + rows). False, and nothing is marked, if one of them was marked before.
  bool Add(int64_t row, int64_t rows) {
    auto next = spans_.lower_bound(row);
    if (next != spans_.end() && next->first < row + rows) return false;
    if (next != spans_.begin()) {
      const auto before = std::prev(next);
      if (before->second > row) return false;
      if (before->second == row) {
        before->second = row + rows;
        covered_ += rows;
        return true;
      }
    }
    spans_[row] = row + rows;
    covered_ += rows;
    return true;
  }
  int64_t covered() const { return covered_; }

 private:
  std::map<int64_t, int64_t> spans_;  // first row → one past the last
  int64_t covered_ = 0;
};

}  // namespace tandem
