// When a response is over. Pure: sees token ids and the text they add, token by token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/types/sample.h"
#include "common/types/sampling_params.h"

namespace tandem {

// One per sample. Checked in this order: end tokens, stop texts, the two limits, the round's.
class StopCondition {
 public:
  // `eos_token_ids` end a response unless params.ignore_eos, which also disarms them among
  // params.stop_token_ids. The response may have params.max_tokens tokens, prompt and response
  // together max_model_len.
  StopCondition(const SamplingParams& params,
                const std::vector<int32_t>& eos_token_ids,
                int64_t prompt_tokens,
                int64_t max_model_len);

  // True if OnToken needs the text (there are stop texts).
  bool needs_text() const { return !stop_.empty(); }
  // After each sampled token. `text` is what the token added: whole characters only, possibly none.
  // kNone: go on.
  FinishReason OnToken(int32_t token, const std::string& text);
  // From here on the response may have `tokens` more in this round: kCut comes with the last of
  // them, unless that one ends the response. 0: no limit.
  void CutAfter(int64_t tokens) { round_left_ = tokens; }

 private:
  bool EndsText(const std::string& text);

  std::vector<int32_t> stop_ids_;  // sorted
  std::vector<std::string> stop_;
  size_t longest_stop_ = 0;  // bytes
  std::string tail_;         // end of the text so far, too short to hold a stop text
  int64_t left_ = 0;         // tokens
  int64_t round_left_ = 0;   // tokens until it is cut; 0: it is not
};

}  // namespace tandem
