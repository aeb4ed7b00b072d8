// Responses of any length whose tokens are a function of sample id and position alone, so that
// lost, repeated or exchanged tokens of a cut response show.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "controller/workers/rollout_client.h"

namespace tandem::testing {

// How long a FakeRolloutClient's responses are. Without `length` they have two tokens, and are
// neither cut nor gone on with.
struct FakeResponses {
  // Tokens after which a sample stops; SamplingParams::max_tokens may end it before.
  std::function<int64_t(uint64_t sample_id)> length;
  // A sample of a request that may be cut makes so many tokens in this round and no more, so that
  // its request goes on until it is aborted; nullopt, or empty: it is not held up.
  std::function<std::optional<int64_t>(uint64_t sample_id)> held_after;
};

// Below 60. `position` counts response tokens.
inline int32_t FakeToken(uint64_t sample_id, int64_t position) {
  const uint64_t mixed =
      (sample_id + 1) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(position) * 7;
  return static_cast<int32_t>((mixed >> 32 ^ mixed) % 60);
}
inline float FakeLogProb(uint64_t sample_id, int64_t position) {
  return -0.25f - static_cast<float>((sample_id + static_cast<uint64_t>(position)) % 8) / 16.0f;
}

// InvalidArgument where a request's samples do not go on from their own tokens, or not as a rollout
// would take them.
inline absl::Status CheckFakeContinuations(const GroupRequest& request) {
  if (request.continued.empty()) return absl::OkStatus();
  if (request.continued.size() != request.sample_ids.size()) {
    return InvalidArgument("{} continuations for {} samples", request.continued.size(),
                           request.sample_ids.size());
  }
  for (size_t i = 0; i < request.continued.size(); ++i) {
    const Continuation& from = request.continued[i];
    const uint64_t id = request.sample_ids[i];
    const size_t tokens = from.tokens.size();
    bool fits = from.versions.size() == tokens && from.log_probs.size() == tokens &&
                std::is_sorted(from.versions.begin(), from.versions.end()) &&
                static_cast<int64_t>(tokens) < request.params.max_tokens &&
                (tokens == 0 || from.versions.back() <= request.version);
    for (size_t t = 0; fits && t < tokens; ++t) {
      fits = from.tokens[t] == FakeToken(id, static_cast<int64_t>(t)) &&
             from.log_probs[t] == FakeLogProb(id, static_cast<int64_t>(t));
    }
    if (!fits)
      return InvalidArgument("sample {} goes on from {} tokens that are not its", id, tokens);
  }
  return absl::OkStatus();
}

// What a request makes of its sample number `index`. kAborted: it is held up, and has this when it
// is aborted.
inline Sample MakeFakeResponse(const GroupRequest& request,
                               size_t index,
                               const FakeResponses& responses) {
  const uint64_t id = request.sample_ids[index];
  const Continuation from = request.continued.empty() ? Continuation{} : request.continued[index];
  const auto carried = std::ssize(from.tokens);
  int64_t length = responses.length(id);
  FinishReason reason = FinishReason::kStop;
  const auto ends_at = [&](int64_t tokens, FinishReason why) {
    if (tokens >= length) return;
    length = tokens;
    reason = why;
  };
  ends_at(request.params.max_tokens, FinishReason::kLength);
  if (from.max_new_tokens > 0) ends_at(carried + from.max_new_tokens, FinishReason::kCut);
  const auto held = request.interruptible && responses.held_after ? responses.held_after(id)
                                                                  : std::optional<int64_t>();
  if (held) ends_at(carried + *held, FinishReason::kAborted);

  Sample sample{.sample_id = id,
                .group = request.group,
                .index = static_cast<int64_t>(index),
                .tokens = request.prompt,
                .prompt_tokens = std::ssize(request.prompt),
                .finish_reason = reason};
  sample.segments.push_back({.length = sample.prompt_tokens});
  for (int64_t t = 0; t < length; ++t) {
    const int64_t version = t < carried ? from.versions[static_cast<size_t>(t)] : request.version;
    if (!sample.segments.back().trained || sample.segments.back().weight_version != version) {
      sample.segments.push_back(
          {.begin = std::ssize(sample.tokens), .trained = true, .weight_version = version});
    }
    ++sample.segments.back().length;
    sample.tokens.push_back(FakeToken(id, t));
    sample.log_probs.push_back(FakeLogProb(id, t));
    sample.versions.push_back(version);
  }
  return sample;
}

// What a sample has, to go on from.
inline Continuation ContinuationOf(const Sample& sample, int64_t max_new_tokens = 0) {
  return {.tokens = {sample.tokens.begin() + sample.prompt_tokens, sample.tokens.end()},
          .log_probs = sample.log_probs,
          .versions = sample.versions,
          .max_new_tokens = max_new_tokens};
}

}  // namespace tandem::testing
