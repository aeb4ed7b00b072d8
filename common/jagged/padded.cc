#include "common/jagged/padded.h"

#include <algorithm>

namespace tandem {

absl::StatusOr<Padded<int64_t>> PositionIds(const Mask& attention) {
  TANDEM_RETURN_IF_ERROR(CheckPadded(attention));
  Padded<int64_t> ids{.rows = attention.rows, .columns = attention.columns};
  for (int64_t row = 0; row < attention.rows; ++row) {
    int64_t kept = 0;
    for (int64_t column = 0; column < attention.columns; ++column) {
      if (attention(row, column)) ++kept;
      ids.values.push_back(std::max<int64_t>(kept - 1, 0));
    }
  }
  return ids;
}

absl::StatusOr<std::vector<int64_t>> KeptPlaces(const Mask& attention) {
  TANDEM_RETURN_IF_ERROR(CheckPadded(attention));
  std::vector<int64_t> places;
  for (int64_t row = 0; row < attention.rows; ++row) {
    for (int64_t column = 0; column < attention.columns; ++column) {
      if (attention(row, column)) places.push_back(row * attention.columns + column);
    }
  }
  return places;
}

absl::StatusOr<std::vector<ResponseWindow>> WindowsOf(const Mask& attention,
                                                      int64_t prompt_columns) {
  TANDEM_RETURN_IF_ERROR(CheckPadded(attention));
  std::vector<ResponseWindow> windows;
  for (int64_t row = 0; row < attention.rows; ++row) {
    int64_t prompt = 0, response = 0;
    for (int64_t column = 0; column < attention.columns; ++column) {
      if (attention(row, column)) ++(column < prompt_columns ? prompt : response);
    }
    const auto window = MakeResponseWindow(prompt, response);
    if (!window.ok()) return Annotate(window.status(), fmt::format("row {}", row));
    windows.push_back(*window);
  }
  return windows;
}

Padded<int32_t> AttentionMask(const std::vector<int64_t>& offsets, int64_t columns) {
  Jagged<int32_t> ones{.values = std::vector<int32_t>(static_cast<size_t>(offsets.back()), 1),
                       .offsets = offsets};
  return PadRight(ones, columns);
}

}  // namespace tandem
