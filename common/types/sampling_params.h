// How one response is sampled. Field names are verl's / OpenAI's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

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
