// What a model computed for every position of a jagged batch → what belongs to the responses.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/jagged/jagged.h"
#include "common/jagged/padded.h"
#include "common/types/response_window.h"

namespace tandem {

// InvalidArgument, naming the row: another number of windows than rows, or a window that is not its
// row's (ResponseWindow::sequence_tokens), or has no prompt.
absl::Status CheckWindows(const std::vector<int64_t>& offsets,
                          const std::vector<ResponseWindow>& windows);

// The rows of `output` [tokens, width] that score the responses (verl: response_from_nested).
template <typename T>
absl::StatusOr<Jagged<T>> ResponseRows(const Jagged<T>& output,
                                       const std::vector<ResponseWindow>& windows) {
  TANDEM_RETURN_IF_ERROR(CheckJagged(output));
  TANDEM_RETURN_IF_ERROR(CheckWindows(output.offsets, windows));
  Jagged<T> responses{.width = output.width};
  for (int64_t row = 0; row < output.rows(); ++row) {
    const ResponseWindow& window = windows[static_cast<size_t>(row)];
    responses.Append(output.Slice(row, window.first_row(), window.end_row()));
  }
  return responses;
}

// The same, aligned left in `columns` (negative: the longest response), zeros behind (verl:
// no_padding_2_padding).
template <typename T>
absl::StatusOr<Padded<T>> PaddedResponseRows(const Jagged<T>& output,
                                             const std::vector<ResponseWindow>& windows,
                                             int64_t columns) {
  TANDEM_ASSIGN_OR_RETURN(const Jagged<T> responses, ResponseRows(output, windows));
  return PadRight(responses, columns);
}

// The first windows[row].response_tokens columns of each row of `responses`, which are aligned left
// (verl: response_to_nested). InvalidArgument: another number of rows, or a longer response.
template <typename T>
absl::StatusOr<Jagged<T>> UnpadResponses(const Padded<T>& responses,
                                         const std::vector<int64_t>& lengths) {
  TANDEM_RETURN_IF_ERROR(CheckPadded(responses));
  if (responses.rows != std::ssize(lengths)) {
    return InvalidArgument("{} lengths for {} rows", lengths.size(), responses.rows);
  }
  Jagged<T> jagged{.width = responses.width};
  for (int64_t row = 0; row < responses.rows; ++row) {
    const int64_t length = lengths[static_cast<size_t>(row)];
    if (length < 0 || length > responses.columns) {
      return InvalidArgument("row {} has a response of {} tokens in {} columns", row, length,
                             responses.columns);
    }
    const size_t stride = static_cast<size_t>(responses.columns * responses.width);
    jagged.Append(std::span<const T>(responses.values)
                      .subspan(static_cast<size_t>(row) * stride,
                               static_cast<size_t>(length * responses.width)));
  }
  return jagged;
}

// Tokens and positions of a packed batch, one sequence behind the other.
struct PackedInputs {
  std::vector<int64_t> input_ids;
  std::vector<int64_t> position_ids;
};

// `pad_size` tokens of `pad_value` more, with positions from 0 on: the padding is a sequence of its
// own and continues none (verl: pad_packed_inputs). pad_size below 1 changes nothing.
void PadPackedInputs(int64_t pad_size, int64_t pad_value, PackedInputs& inputs);

}  // namespace tandem
