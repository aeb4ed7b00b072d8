#include "controller/rollouts/sample_check.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "common/types/response_tokens.h"

namespace tandem {
namespace {

template <typename... Args>
absl::Status Refuse(const Sample& sample, fmt::format_string<Args...> what, Args&&... args) {
  return MakeStatus(absl::StatusCode::kDataLoss, "sample {:#x} {}", sample.sample_id,
                    fmt::format(what, std::forward<Args>(args)...));
}

absl::Status CheckPrompt(const GroupRequest& request, const Sample& sample) {
  if (sample.group != request.group) {
    return Refuse(sample, "came for group {}, and belongs to group {}", sample.group,
                  request.group);
  }
  const auto& prompt = request.prompt;
  const bool same = sample.prompt_tokens == std::ssize(prompt) &&
                    sample.tokens.size() >= prompt.size() &&
                    std::equal(prompt.begin(), prompt.end(), sample.tokens.begin());
  return same ? absl::OkStatus() : Refuse(sample, "came with another prompt than it was asked for");
}

absl::Status CheckSizes(const GroupRequest& request, const Sample& sample) {
  const auto responses = static_cast<size_t>(sample.response_tokens());
  if (sample.finish_reason == FinishReason::kNone) {
    return Refuse(sample, "came without saying why it ended");
  }
  const int64_t most = request.params.max_tokens;
  if (most > 0 && sample.response_tokens() > most) {
    return Refuse(sample, "has {} response tokens, and max_tokens is {}", responses, most);
  }
  const bool no_log_probs = sample.log_probs.empty() && !request.log_probs;
  if (sample.versions.size() != responses ||
      (sample.log_probs.size() != responses && !no_log_probs)) {
    return Refuse(sample, "has {} response tokens, but {} log-probs and {} weight versions",
                  responses, sample.log_probs.size(), sample.versions.size());
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const GroupRequest& request, const Sample& sample, int64_t vocab_limit) {
  const bool fresh = request.continued.empty() && !request.load_continued;
  for (size_t i = 0; i < sample.versions.size(); ++i) {
    const int32_t id = sample.tokens[static_cast<size_t>(sample.prompt_tokens) + i];
    if (id < 0 || id >= vocab_limit) {
      return Refuse(sample, "has id {} as response token {}, and the tokenizer has {} ids", id, i,
                    vocab_limit);
    }
    const int64_t version = sample.versions[i];
    const bool fits = fresh ? version == request.version : version <= request.version;
    if (request.version >= 0 && !fits) {
      return Refuse(sample,
                    "has a response token {} that weights of version {} sampled; version {} was "
                    "asked for",
                    i, version, request.version);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAnswer(const GroupRequest& request, const Sample& sample, int64_t vocab_limit) {
  TANDEM_RETURN_IF_ERROR(CheckPrompt(request, sample));
  TANDEM_RETURN_IF_ERROR(CheckSizes(request, sample));
  for (size_t i = 0; i < sample.log_probs.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(
        CheckFiniteLogProb(sample, static_cast<int64_t>(i), sample.log_probs[i], "rollout"));
  }
  return CheckTokens(request, sample, vocab_limit);
}

}  // namespace tandem
