#include "rollout_worker/generation/continuation_check.h"

#include "common/base/status_macros.h"

namespace tandem {
namespace {

absl::Status CheckLengths(const Continuation& continuation, bool log_probs) {
  const size_t tokens = continuation.tokens.size();
  const size_t wanted = log_probs ? tokens : 0;
  if (continuation.versions.size() != tokens) {
    return InvalidArgument("it goes on from {} tokens with {} versions: send one for each", tokens,
                           continuation.versions.size());
  }
  if (continuation.log_probs.size() == wanted) return absl::OkStatus();
  if (!log_probs) {
    return InvalidArgument(
        "it goes on from {} tokens with {} log-probs, but none follow "
        "(rollout.calculate_log_probs=false): send none, or ask for them",
        tokens, continuation.log_probs.size());
  }
  return InvalidArgument("it goes on from {} tokens with {} log-probs: send one for each", tokens,
                         continuation.log_probs.size());
}

absl::Status CheckTokens(const Continuation& continuation, int64_t vocab_limit) {
  for (size_t i = 0; i < continuation.tokens.size(); ++i) {
    const int32_t id = continuation.tokens[i];
    if (id >= 0 && id < vocab_limit) continue;
    return InvalidArgument(
        "response token {} of those it goes on from is id {}, but the tokenizer's ids are 0 to {}: "
        "they are another tokenizer's, start it anew",
        i, id, vocab_limit - 1);
  }
  return absl::OkStatus();
}

absl::Status CheckVersions(const Continuation& continuation, int64_t served) {
  int64_t before = 0;
  for (size_t i = 0; i < continuation.versions.size(); ++i) {
    const int64_t version = continuation.versions[i];
    if (version < before) {
      return InvalidArgument(
          "response token {} of those it goes on from is of weight version {}, after version {}: "
          "versions never fall; send them as they came",
          i, version, before);
    }
    before = version;
    if (served < 0 || version <= served) continue;
    return InvalidArgument(
        "response token {} of those it goes on from is of weight version {}, but this rollout "
        "serves version {}: sync it first, or start the sample anew",
        i, version, served);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckContinuation(const Continuation& continuation, const ContinuationRules& rules) {
  TANDEM_RETURN_IF_ERROR(CheckLengths(continuation, rules.log_probs));
  TANDEM_RETURN_IF_ERROR(CheckTokens(continuation, rules.vocab_limit));
  TANDEM_RETURN_IF_ERROR(CheckVersions(continuation, rules.version));
  if (static_cast<int64_t>(continuation.tokens.size()) >= rules.max_tokens) {
    return InvalidArgument(
        "it has {} of max_tokens={} already: nothing is left to generate, it is finished by length",
        continuation.tokens.size(), rules.max_tokens);
  }
  if (continuation.max_new_tokens < 0) {
    return InvalidArgument("max_new_tokens is {}, it must be at least 1, or 0 for no limit",
                           continuation.max_new_tokens);
  }
  return absl::OkStatus();
}

}  // namespace tandem
