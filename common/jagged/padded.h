// Padded batches, as verl keeps them: each row a prompt aligned right in the first columns, then
// its response aligned left in the others. Only converters from and to the jagged layout know of
// padding; no result of theirs depends on how wide it is.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/status_macros.h"
#include "common/jagged/jagged.h"
#include "common/types/response_window.h"

namespace tandem {

template <typename T>
struct Padded {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t width = 1;      // values per column
  std::vector<T> values;  // [rows, columns, width]

  std::span<const T> At(int64_t row, int64_t column) const {
    return std::span<const T>(values).subspan(static_cast<size_t>((row * columns + column) * width),
                                              static_cast<size_t>(width));
  }
  bool operator()(int64_t row, int64_t column) const { return At(row, column).front() != T{}; }
};

using Mask = Padded<int64_t>;  // 0 or 1

template <typename T>
absl::Status CheckPadded(const Padded<T>& padded) {
  if (padded.rows >= 0 && padded.columns >= 0 && padded.width >= 1 &&
      padded.rows * padded.columns * padded.width == std::ssize(padded.values)) {
    return absl::OkStatus();
  }
  return InvalidArgument("{} values are there for {} rows of {} columns of {}",
                         padded.values.size(), padded.rows, padded.columns, padded.width);
}

// Positions along each row: the number of kept columns before, and 0 before the first; columns
// behind the last kept one repeat its position (verl: compute_position_id_with_mask).
absl::StatusOr<Padded<int64_t>> PositionIds(const Mask& attention);

// Places of the kept columns in the batch's columns one row behind the other, ascending.
absl::StatusOr<std::vector<int64_t>> KeptPlaces(const Mask& attention);

// One window per row, counted from the kept columns of the first `prompt_columns` and of the rest.
// InvalidArgument: a row without prompt.
absl::StatusOr<std::vector<ResponseWindow>> WindowsOf(const Mask& attention,
                                                      int64_t prompt_columns);

// 1 for the first length columns of each row of `offsets` (as in Jagged); `columns` in all,
// negative: as many as the longest row has (verl: build_attention_mask_from_nested, max_seq_len).
Padded<int32_t> AttentionMask(const std::vector<int64_t>& offsets, int64_t columns);

// The kept columns of each row (verl: left_right_2_no_padding, unpad_input).
template <typename T>
absl::StatusOr<Jagged<T>> Unpad(const Padded<T>& padded, const Mask& attention) {
  TANDEM_RETURN_IF_ERROR(CheckPadded(padded));
  TANDEM_RETURN_IF_ERROR(CheckPadded(attention));
  if (padded.rows != attention.rows || padded.columns != attention.columns) {
    return InvalidArgument("a mask of {} x {} does not fit a batch of {} x {}", attention.rows,
                           attention.columns, padded.rows, padded.columns);
  }
  Jagged<T> jagged{.width = padded.width};
  for (int64_t row = 0; row < padded.rows; ++row) {
    std::vector<T> kept;
    for (int64_t column = 0; column < padded.columns; ++column) {
      if (!attention(row, column)) continue;
      const std::span<const T> values = padded.At(row, column);
      kept.insert(kept.end(), values.begin(), values.end());
    }
    jagged.Append(kept);
  }
  return jagged;
}

// Rows aligned left, zeros behind them. `columns` negative: as many as the longest row has. Rows
// that are longer are cut, as by verl.
template <typename T>
Padded<T> PadRight(const Jagged<T>& jagged, int64_t columns) {
  if (columns < 0) {
    columns = 0;
    for (int64_t row = 0; row < jagged.rows(); ++row) {
      columns = std::max(columns, jagged.length(row));
    }
  }
  Padded<T> padded{.rows = jagged.rows(), .columns = columns, .width = jagged.width};
  padded.values.reserve(static_cast<size_t>(padded.rows * columns * padded.width));
  for (int64_t row = 0; row < jagged.rows(); ++row) {
    const auto kept = jagged.Slice(row, 0, std::min(columns, jagged.length(row)));
    padded.values.insert(padded.values.end(), kept.begin(), kept.end());
    padded.values.resize(static_cast<size_t>((row + 1) * columns * padded.width), T{});
  }
  return padded;
}

}  // namespace tandem
