// What all samples of a pool have in common.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/types/sampling_params.h"

namespace tandem {

struct PoolOptions {
  std::string tokenizer_digest;
  int64_t vocab_limit = 0;  // ids at or above are no tokens
  int64_t samples_per_prompt = 1;
  SamplingParams sampling;  // max_tokens: the budget of a response, over all its rounds
  bool log_probs = true;    // come with the tokens
  // A file below it is left as it is.
  int64_t compact_above_bytes = int64_t{64} << 20;
};

// What may not change while samples are in the middle of their generation: values as text, by the
// names of their keys.
std::map<std::string, std::string> FixedSettings(const PoolOptions& options);

// Of runs that may follow each other's CutJournal: tokenizer, response length and settings.
std::string CutsIdentity(const PoolOptions& options);

}  // namespace tandem
