// Which rows of a model's output score a response: the row of position i predicts the token at
// position i + 1, so a response of r tokens after a prompt of p is scored by the r rows from p - 1
// on, the last of the prompt first; the row of the last token scores nothing. Everything that goes
// between tokens and rows goes through this type.
#pragma once

#include <cstdint>

#include <absl/status/statusor.h>

#include "common/base/status_macros.h"
#include "common/types/sample.h"

namespace tandem {

struct ResponseWindow {
  int64_t prompt_tokens = 1;  // at least 1: the first response token needs a row before it
  int64_t response_tokens = 0;

  // Positions in the sequence, counted from its first token.
  constexpr int64_t TokenOf(int64_t response) const { return prompt_tokens + response; }
  // The row that scores response token `response`.
  constexpr int64_t RowOf(int64_t response) const { return TokenOf(response) - 1; }
  // The response token at position `token`, negative for one of the prompt.
  constexpr int64_t ResponseOf(int64_t token) const { return token - prompt_tokens; }
  // The rows of the response: [first_row, end_row).
  constexpr int64_t first_row() const { return RowOf(0); }
  constexpr int64_t end_row() const { return RowOf(response_tokens); }
  constexpr int64_t sequence_tokens() const { return prompt_tokens + response_tokens; }

  friend bool operator==(const ResponseWindow&, const ResponseWindow&) = default;
};

// InvalidArgument: no prompt, of which the window would begin in the sequence before, or a negative
// response.
inline absl::StatusOr<ResponseWindow> MakeResponseWindow(int64_t prompt_tokens,
                                                         int64_t response_tokens) {
  if (prompt_tokens < 1) {
    return InvalidArgument(
        "a response of {} tokens follows a prompt of {}: no row scores its first token; give "
        "every prompt at least one token",
        response_tokens, prompt_tokens);
  }
  if (response_tokens < 0) return InvalidArgument("a response has {} tokens", response_tokens);
  return ResponseWindow{prompt_tokens, response_tokens};
}

// Of a sample that has a prompt, as all have that a SampleStore or a micro-batch took.
inline ResponseWindow WindowOf(const Sample& sample) {
  return {sample.prompt_tokens, sample.response_tokens()};
}

}  // namespace tandem
