// Rounds of generation: samples that a round leaves unfinished continue in the next.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/rollout_worker/tiny_rig.h"

namespace tandem::testing {

// The first `tokens` response tokens of a sample, to go on from.
inline Continuation HeadOf(const Sample& sample, int64_t tokens) {
  const auto begin = sample.tokens.begin() + sample.prompt_tokens;
  Continuation head{.tokens = {begin, begin + tokens},
                    .versions = {sample.versions.begin(), sample.versions.begin() + tokens}};
  if (!sample.log_probs.empty()) {
    head.log_probs = {sample.log_probs.begin(), sample.log_probs.begin() + tokens};
  }
  return head;
}

// The request for those of its samples that have more than `tokens` tokens, from there on. Without
// samples if there are none.
inline GenerationRequest Resume(const GenerationRequest& request,
                                const SamplesById& whole,
                                int64_t tokens) {
  GenerationRequest rest = request;
  rest.sample_ids.clear();
  for (const uint64_t id : request.sample_ids) {
    if (whole.at(id).response_tokens() <= tokens) continue;
    rest.sample_ids.push_back(id);
    rest.continued.push_back(HeadOf(whole.at(id), tokens));
  }
  return rest;
}

inline std::vector<GenerationRequest> ResumeAll(const std::vector<GenerationRequest>& requests,
                                                const SamplesById& whole,
                                                int64_t tokens) {
  std::vector<GenerationRequest> rest;
  for (const GenerationRequest& request : requests) {
    rest.push_back(Resume(request, whole, tokens));
    if (rest.back().sample_ids.empty()) rest.pop_back();
  }
  return rest;
}

// Rounds of at most `cap` tokens per sample until all are finished, each on a new replica.
// Whatever a round cuts has exactly `cap` tokens more.
inline SamplesById GenerateInRounds(const std::vector<GenerationRequest>& requests,
                                    int64_t cap,
                                    const std::function<std::unique_ptr<Rig>(int round)>& replica) {
  SamplesById finished, cut;
  for (int round = 0; finished.empty() || !cut.empty(); ++round) {
    std::vector<GenerationRequest> wanted;
    for (const GenerationRequest& request : requests) {
      GenerationRequest rest = request;
      rest.sample_ids.clear();
      for (const uint64_t id : request.sample_ids) {
        if (round > 0 && cut.count(id) == 0) continue;
        Continuation from;
        if (round > 0) from = HeadOf(cut.at(id), cut.at(id).response_tokens());
        from.max_new_tokens = cap;
        rest.sample_ids.push_back(id);
        rest.continued.push_back(std::move(from));
      }
      if (!rest.sample_ids.empty()) wanted.push_back(std::move(rest));
    }
    cut.clear();
    for (const auto& [id, sample] : GenerateAll(*replica(round), wanted)) {
      const bool is_cut = sample.finish_reason == FinishReason::kCut;
      if (is_cut) REQUIRE(sample.response_tokens() == (round + 1) * cap);
      REQUIRE((is_cut ? cut : finished).emplace(id, sample).second);
    }
  }
  return finished;
}

// RequireSame for those of `expected` that have more than `tokens` tokens, and nothing else came.
inline void RequireRest(const SamplesById& actual, const SamplesById& expected, int64_t tokens) {
  SamplesById longer;
  for (const auto& [id, sample] : expected) {
    if (sample.response_tokens() > tokens) longer.emplace(id, sample);
  }
  REQUIRE(!longer.empty());
  RequireSame(actual, longer);
  for (const auto& [id, sample] : longer) {
    REQUIRE(actual.at(id).versions == sample.versions);
    REQUIRE(actual.at(id).prompt_tokens == sample.prompt_tokens);
    REQUIRE(actual.at(id).segments.size() == sample.segments.size());
  }
}

}  // namespace tandem::testing
