#include "trainer_worker/forward_backward/fresh_ratios.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/status_macros.h"
#include "trainer_worker/forward_backward/token_inputs.h"

namespace tandem {
namespace {

constexpr size_t kShownRatios = 5;

}  // namespace

void FreshRatios::Add(const PackedBatch& batch,
                      const std::vector<Sample>& samples,
                      const std::vector<float>& log_probs,
                      const MiniBatchRequest& request) {
  for (size_t i = 0; i < log_probs.size(); ++i) {
    const Sample& sample = ScoredSample(batch, samples, i);
    const auto response = static_cast<size_t>(batch.scored_response[i]);
    if (!IsFresh(sample, response, request)) continue;
    ++tokens_;
    const float old = OldLogProbs(sample, request)[response];
    if (old == log_probs[i]) continue;
    ++moved_;
    const double difference = std::abs(static_cast<double>(old) - log_probs[i]);
    const auto place = std::find_if(worst_.begin(), worst_.end(), [&](const Token& token) {
      return !(token.difference >= difference);
    });
    worst_.insert(place, {.sample_id = sample.sample_id,
                          .position = sample.prompt_tokens + batch.scored_response[i],
                          .old_log_prob = old,
                          .log_prob = log_probs[i],
                          .difference = difference});
    if (worst_.size() > kShownRatios) worst_.pop_back();
  }
}

absl::Status FreshRatios::status() const {
  if (moved_ == 0) return absl::OkStatus();
  std::string tokens;
  for (const Token& token : worst_) {
    tokens += fmt::format("\n  sample {:#x}, position {}: old log-prob {:.9g}, now {:.9g}",
                          token.sample_id, token.position, token.old_log_prob, token.log_prob);
  }
  return MakeStatus(
      absl::StatusCode::kDataLoss,
      "before the first optimizer step {} of {} tokens have an importance ratio other than 1, "
      "although their old log-probs are of the same weights: log-probs and tokens do not belong "
      "together, or the numerics differ; training on them would be wrong without notice. See "
      "which tokens differ in the saved step (tandemctl batch inspect), whether rollout and "
      "trainer "
      "give the same bits for this model here (tandemctl parity), and whether all workers run the "
      "same build on machines with the same instruction set (TANDEM_CPU_ISA forces one). The "
      "worst:{}",
      moved_, tokens_, tokens);
}

}  // namespace tandem
