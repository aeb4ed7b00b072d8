#include "trainer_worker/forward_backward/ratio_checks.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "common/base/status.h"
#include "trainer_worker/forward_backward/token_inputs.h"

namespace tandem {
namespace {

constexpr size_t kShownRatios = 5;

}  // namespace

void OnPolicyRatioCheck::Add(const PackedBatch& batch,
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

absl::Status OnPolicyRatioCheck::status() const {
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
      "together, or the numerics differ; training on them would be wrong without notice. See which "
      "tokens differ in the saved step (tandemctl batch inspect), whether rollout and trainer give "
      "the same bits for this model here (tandemctl parity), and whether all workers run the same "
      "build on machines with the same instruction set (TANDEM_CPU_ISA forces one). The worst:{}",
      moved_, tokens_, tokens);
}

void OffPolicyTokenStats::Add(const PackedBatch& batch,
                              const std::vector<Sample>& samples,
                              const std::vector<float>& log_probs,
                              const MiniBatchRequest& request) {
  for (size_t i = 0; i < log_probs.size(); ++i) {
    const Sample& sample = ScoredSample(batch, samples, i);
    const auto response = static_cast<size_t>(batch.scored_response[i]);
    if (!IsStale(sample, response, request)) continue;
    part_.tokens += 1;
    if (sample.log_probs.empty()) continue;
    part_.measured += 1;
    const double moved =
        std::clamp(static_cast<double>(log_probs[i]) - sample.log_probs[response], -20.0, 20.0);
    const double ratio = std::exp(moved);
    // Rounded once to float, as ExactSum adds floats.
    part_.ratio.Add(static_cast<float>(ratio));
    part_.kl.Add(static_cast<float>(ratio - 1 - moved));
    part_.least = std::min(part_.least, ratio);
    part_.most = std::max(part_.most, ratio);
  }
}

void OffPolicyTokenStats::Part::Join(Part other) {
  tokens += other.tokens;
  measured += other.measured;
  least = std::min(least, other.least);
  most = std::max(most, other.most);
  for (const auto& [mine, theirs] : {std::pair{&ratio, &other.ratio}, std::pair{&kl, &other.kl}}) {
    for (size_t bin = 0; bin < mine->bins().size(); ++bin) mine->bins()[bin] += theirs->bins()[bin];
  }
}

absl::Status OffPolicyTokenStats::Reduce(Communicator& communicator) {
  static_assert(std::is_trivially_copyable_v<Part>);
  std::vector<Part> parts(static_cast<size_t>(communicator.world_size()));
  TANDEM_RETURN_IF_ERROR(communicator.host().AllGather(&part_, sizeof(part_), parts.data()));
  part_ = Part();
  for (const Part& part : parts) part_.Join(part);
  return absl::OkStatus();
}

void OffPolicyTokenStats::AddMetrics(std::map<std::string, double>& metrics) const {
  if (!any()) return;
  metrics["partial/stale_tokens"] = part_.tokens;
  if (part_.measured == 0) return;
  metrics["partial/stale_ratio_mean"] = part_.ratio.Value() / part_.measured;
  metrics["partial/stale_ratio_min"] = part_.least;
  metrics["partial/stale_ratio_max"] = part_.most;
  metrics["partial/stale_kl"] = part_.kl.Value() / part_.measured;
}

}  // namespace tandem
