// A sample is one response that is being or has been generated; a group is the n samples of one
// prompt. Plain structs, no behaviour.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

// Why a response ended. kCut: it is unfinished but has the number of tokens that a round allows.
enum class FinishReason { kNone, kStop, kLength, kAborted, kCut };

// Consecutive tokens of a sample with one origin, mask and weight version.
struct Segment {
  int64_t begin = 0;           // index into Sample::tokens
  int64_t length = 0;          // tokens
  bool trained = false;        // false: prompt or tool output
  int64_t weight_version = 0;  // of the weights that sampled it; 0 for prompts
};

struct Sample {
  uint64_t sample_id = 0;       // unique in a run: see MakeSampleId
  int64_t group = 0;            // position of the prompt in the step's batch
  int64_t index = 0;            // 0 .. n-1 inside the group
  std::vector<int32_t> tokens;  // prompt, then response
  int64_t prompt_tokens = 0;
  std::vector<float> log_probs;   // one per response token, fp32, at temperature T; or none
  std::vector<int64_t> versions;  // weight version per response token
  std::vector<Segment> segments;
  FinishReason finish_reason = FinishReason::kNone;
  float temperature = 1.0f;
  bool off_support = false;  // sampled through top-p/top-k
  double reward = 0.0;
  std::vector<float> advantages;     // one per response token
  std::vector<float> ref_log_probs;  // under the reference policy; empty unless a KL term needs it
  std::vector<float> old_log_probs;  // empty unless actor.old_log_prob is recompute
  std::vector<float> is_weights;     // factors of the policy loss, per response token; empty: all 1
  // 0 or 1 per response token: whether a loss counts it (rejected by the rollout correction: 0);
  // empty: all that are trained.
  std::vector<float> mask;

  int64_t response_tokens() const { return static_cast<int64_t>(tokens.size()) - prompt_tokens; }
};

// The part of a response that earlier rounds generated, and from which it is continued.
struct Continuation {
  std::vector<int32_t> tokens;    // of the response
  std::vector<float> log_probs;   // as sampled, one per token; or none
  std::vector<int64_t> versions;  // one per token, ascending
  int64_t max_new_tokens = 0;     // cut after this many further tokens; 0: no limit
};

// Training uses the epochs below kTrainEpochs. The last four values of an epoch's 12 bits are
// reserved for greedy baselines, the parity probe, samples that users request, and validation, so
// that sample ids of different kinds never collide.
inline constexpr uint64_t kTrainEpochs = 0xffc;
inline constexpr uint64_t kBaselineEpoch = 0xffc;
inline constexpr uint64_t kProbeEpoch = 0xffd;
inline constexpr uint64_t kUserEpoch = 0xffe;
inline constexpr uint64_t kValidationEpoch = 0xfff;

// Samples of one prompt: the number of values of the index's 12 bits.
inline constexpr int64_t kMaxGroupSamples = 4096;

// The identity that keys the sampling: data row, epoch and index inside the group.
// 40 bits of row, 12 of epoch, 12 of index; CheckEpochs keeps a run from using up the epochs.
constexpr uint64_t MakeSampleId(uint64_t data_row, uint64_t epoch, uint64_t index) {
  return (data_row << 24) | ((epoch & 0xfffu) << 12) | (index & 0xfffu);
}

// The least temperature above 0 that is accepted. With a lower one, logits times 1/T may overflow,
// or one token has all the probability. The field names of SamplingParams below are those of verl
// and OpenAI.
inline constexpr double kMinTemperature = 1e-3;

struct SamplingParams {
  float temperature = 1.0f;  // 0 means greedy; log-probs are then recorded at T = 1
  float top_p = 1.0f;        // (0, 1]
  int64_t top_k = -1;        // -1 means off
  int64_t max_tokens = 0;    // response tokens, at least 1
  uint64_t seed = 0;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop;  // stop strings, removed from the text, kept in the tokens
  bool ignore_eos = false;

  // True if a filter may exclude tokens, so that the sample is off the policy's support.
  bool filtered() const { return top_p < 1.0f || top_k > 0; }
};

}  // namespace tandem
