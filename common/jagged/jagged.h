// Rows of different lengths one behind the other, without padding: values and offsets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/status.h>

#include "common/base/status_macros.h"

namespace tandem {

template <typename T>
struct Jagged {
  std::vector<T> values;            // [tokens, width]
  std::vector<int64_t> offsets{0};  // [rows + 1], in tokens: row r is [offsets[r], offsets[r + 1])
  int64_t width = 1;                // values per token

  int64_t rows() const { return std::ssize(offsets) - 1; }
  int64_t tokens() const { return offsets.back(); }
  int64_t length(int64_t row) const {
    return offsets[static_cast<size_t>(row) + 1] - offsets[static_cast<size_t>(row)];
  }
  // Tokens [begin, end) of a row, [end - begin, width].
  std::span<const T> Slice(int64_t row, int64_t begin, int64_t end) const {
    const int64_t first = (offsets[static_cast<size_t>(row)] + begin) * width;
    return std::span<const T>(values).subspan(static_cast<size_t>(first),
                                              static_cast<size_t>((end - begin) * width));
  }
  std::span<const T> Row(int64_t row) const { return Slice(row, 0, length(row)); }
  // [tokens, width] of one more row.
  void Append(std::span<const T> row) {
    values.insert(values.end(), row.begin(), row.end());
    offsets.push_back(offsets.back() + std::ssize(row) / width);
  }
};

// [lengths + 1]: 0, and the sum of the first lengths.
inline std::vector<int64_t> OffsetsOf(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets = {0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

// InvalidArgument: offsets that do not ascend from 0 to the number of values.
template <typename T>
absl::Status CheckJagged(const Jagged<T>& jagged) {
  if (jagged.width < 1) return InvalidArgument("{} values per token", jagged.width);
  if (jagged.offsets.empty() || jagged.offsets.front() != 0) {
    return InvalidArgument("the offsets of {} values do not begin with 0", jagged.values.size());
  }
  for (int64_t row = 0; row < jagged.rows(); ++row) {
    if (jagged.length(row) < 0) {
      return InvalidArgument("row {} has {} tokens: offsets must not descend", row,
                             jagged.length(row));
    }
  }
  if (jagged.tokens() * jagged.width != std::ssize(jagged.values)) {
    return InvalidArgument("{} values are there for {} tokens of {} each", jagged.values.size(),
                           jagged.tokens(), jagged.width);
  }
  return absl::OkStatus();
}

}  // namespace tandem
