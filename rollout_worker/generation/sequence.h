// A sample during generation, and the group it belongs to. Plain data: the scheduler moves
// sequences between queues, and the generator appends tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/types/sample.h"

namespace tandem {

struct SequenceGroup;

enum class SequenceState {
  kUnforked,  // waits for its group's leader to prefill the prompt
  kWaiting,
  kRunning,
  kFinished
};

// One sample. The K and V of tokens [0, computed) are stored in `blocks`.
struct Sequence {
  SequenceGroup* group = nullptr;
  int64_t index = 0;  // in the group
  uint64_t sample_id = 0;
  std::vector<int32_t> tokens;  // prompt, then response
  std::vector<float> log_probs;
  std::vector<int64_t> versions;
  FinishReason finish_reason = FinishReason::kNone;
  int64_t carried = 0;  // response tokens from earlier rounds (Continuation)

  // The fields below are the scheduler's.
  SequenceState state = SequenceState::kUnforked;
  int64_t computed = 0;
  std::vector<int32_t> blocks;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
};

// The samples of one request, in index order.
struct SequenceGroup {
  int64_t arrival = 0;  // unique; orders groups in the scheduler
  std::string request_id;
  int64_t group = 0;  // echoed in the samples
  int64_t prompt_tokens = 0;
  SamplingParams params;
  std::vector<std::unique_ptr<Sequence>> sequences;
  bool forked = false;  // the prompt has been prefilled, or is not shared
};

// Makes one sequence per sample id. Each starts with `prompt` and, unless `continued` is empty, the
// tokens of its entry in `continued`.
std::unique_ptr<SequenceGroup> MakeSequenceGroup(const std::vector<int32_t>& prompt,
                                                 const std::vector<uint64_t>& sample_ids,
                                                 const SamplingParams& params,
                                                 const std::vector<Continuation>& continued = {});

// Converts the finished sequence for the trainer: a prompt segment and response segments, one for
// each run of equal weight versions.
Sample MakeSample(const Sequence& sequence);

// Decides when a response is complete, from its token ids and the text that they add, one by one.
// One object per sample. Checked in this order: end tokens, stop texts, the two length limits, the
// round's limit.
class StopCondition {
 public:
  // `eos_token_ids` end a response unless params.ignore_eos is set, which also disables those of
  // them that are in params.stop_token_ids. A response has at most params.max_tokens tokens, and
  // prompt and response together at most max_model_len.
  StopCondition(const SamplingParams& params,
                const std::vector<int32_t>& eos_token_ids,
                int64_t prompt_tokens,
                int64_t max_model_len);

  // Whether OnToken needs the text, that is, whether there are stop texts.
  bool needs_text() const { return !stop_.empty(); }
  // Called after each sampled token. `text` is the text that the token added: complete characters
  // only, possibly none. kNone: continue.
  FinishReason OnToken(int32_t token, const std::string& text);
  // Limits the response to `tokens` more in this round: OnToken returns kCut for the last of them,
  // unless that token ends the response. 0: no limit.
  void CutAfter(int64_t tokens) { round_left_ = tokens; }

 private:
  bool EndsText(const std::string& text);

  std::vector<int32_t> stop_ids_;  // sorted
  std::vector<std::string> stop_;
  size_t longest_stop_ = 0;  // bytes
  std::string tail_;         // end of the text so far, shorter than the longest stop text
  int64_t left_ = 0;         // tokens
  int64_t round_left_ = 0;   // tokens left in this round; 0: no limit
};

}  // namespace tandem
