// Which rows of a model's output score a response: the row of position i predicts the token at
// position i + 1, so a response of r tokens after a prompt of p is scored by the r rows from p - 1
// on, the last of the prompt first; the row of the last token scores nothing. Everything that goes
// between tokens and rows goes through this type.
#pragma once

#include <cstdint>

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
};

// Of a sample that has a prompt, as all have that a SampleStore or a micro-batch took.
inline ResponseWindow WindowOf(const Sample& sample) {
  return {sample.prompt_tokens, sample.response_tokens()};
}

}  // namespace tandem
