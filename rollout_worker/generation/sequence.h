// One sample while it is generated, and the group it belongs to.
// Plain data: the scheduler moves it between queues, the engine appends tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/types/sample.h"

namespace tandem {

struct SequenceGroup;

enum class SequenceState {
  kUnforked,  // waits for the prefill of its group's leader
  kWaiting,
  kRunning,
  kFinished
};

// One sample. Tokens [0, computed) have their K and V in `blocks`.
struct Sequence {
  SequenceGroup* group = nullptr;
  int64_t index = 0;  // in the group
  uint64_t sample_id = 0;
  std::vector<int32_t> tokens;  // prompt, then response
  std::vector<float> log_probs;
  std::vector<int64_t> versions;
  FinishReason finish_reason = FinishReason::kNone;
  int64_t carried = 0;  // response tokens of earlier rounds (Continuation)

  // The scheduler's.
  SequenceState state = SequenceState::kUnforked;
  int64_t computed = 0;
  std::vector<int32_t> blocks;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
};

// The samples of one request, in index order.
struct SequenceGroup {
  int64_t arrival = 0;  // the scheduler's order; unique
  std::string request_id;
  int64_t group = 0;  // echoed in the samples
  int64_t prompt_tokens = 0;
  SamplingParams params;
  std::vector<std::unique_ptr<Sequence>> sequences;
  bool forked = false;  // the prompt's prefill is done, or not shared
};

// One sequence per sample id, each starting with `prompt` and, unless `continued` is empty, the
// tokens of its entry there.
std::unique_ptr<SequenceGroup> MakeSequenceGroup(const std::vector<int32_t>& prompt,
                                                 const std::vector<uint64_t>& sample_ids,
                                                 const SamplingParams& params,
                                                 const std::vector<Continuation>& continued = {});

// The finished sequence as the trainer wants it: prompt and response segments, a new segment where
// the weight version changes.
Sample MakeSample(const Sequence& sequence);

// Decides when a response is complete. Pure: sees token ids and the text they add, one by one.

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
  // After each sampled token. `text` is what the token added: complete characters only, possibly
  // none. kNone: continue.
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
