// A sample is one response that is being or has been generated; a group is the n samples of one
// prompt. Plain structs, no behaviour.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

// Why a response ended. kCut: it is not over, but has the tokens that a round allows it.
enum class FinishReason { kNone, kStop, kLength, kAborted, kCut };

// Consecutive tokens of a sample with one origin, mask and weight version.
struct Segment {
  int64_t begin = 0;           // index into Sample::tokens
  int64_t length = 0;          // tokens
  bool trained = false;        // false: prompt or tool output
  int64_t weight_version = 0;  // that sampled it; 0 for prompt segments
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

// What was generated of a sample in earlier rounds, which it goes on from.
struct Continuation {
  std::vector<int32_t> tokens;    // of the response
  std::vector<float> log_probs;   // as sampled, one for each; or none
  std::vector<int64_t> versions;  // one for each, ascending
  int64_t max_new_tokens = 0;     // after so many more it is cut; 0: no limit
};

// Training has the epochs below kTrainEpochs; the last four values of the 12 bits of an epoch
// belong to greedy baselines, to the probe, to samples that users ask for and to those of
// validation, so that no two kinds ever meet.
inline constexpr uint64_t kTrainEpochs = 0xffc;
inline constexpr uint64_t kBaselineEpoch = 0xffc;
inline constexpr uint64_t kProbeEpoch = 0xffd;
inline constexpr uint64_t kUserEpoch = 0xffe;
inline constexpr uint64_t kValidationEpoch = 0xfff;

// Of one prompt: what 12 bits of an index tell apart.
inline constexpr int64_t kMaxGroupSamples = 4096;

// The identity that keys the sampling: data row, epoch and index inside the group.
// 40 bits of row, 12 of epoch, 12 of index; CheckEpochs keeps a run from using up the epochs.
constexpr uint64_t MakeSampleId(uint64_t data_row, uint64_t epoch, uint64_t index) {
  return (data_row << 24) | ((epoch & 0xfffu) << 12) | (index & 0xfffu);
}

// How one response is sampled. Field names are verl's / OpenAI's.

// Below it logits times 1/T are no numbers any more, or all but one token have probability 0.
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

  // True when a filter can exclude tokens, so that the sample is off the policy's support.
  bool filtered() const { return top_p < 1.0f || top_k > 0; }
};

}  // namespace tandem
