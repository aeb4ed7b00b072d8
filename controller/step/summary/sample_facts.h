// What is recorded of a sample's tokens beside its texts.
#pragma once

#include <cstdint>
#include <vector>

#include "controller/store/run_store.h"

namespace tandem {

// The share of a response's runs of four tokens that have occurred before in it: 0 for one that
// never repeats itself or has less than four tokens, near 1 for one token over and over.
double RepeatedShare(const std::vector<int32_t>& response);

// Sets prompt_tokens, min_log_prob (where the rollout gave log-probs) and repetition.
void AddTokenFacts(const Sample& sample, SampleRecord& record);

}  // namespace tandem
