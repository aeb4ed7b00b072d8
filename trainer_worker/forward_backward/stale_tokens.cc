#include "trainer_worker/forward_backward/stale_tokens.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "common/base/status_macros.h"
#include "trainer_worker/forward_backward/token_inputs.h"

namespace tandem {

void StaleTokens::Add(const PackedBatch& batch,
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
    // Rounded once, as exact sums are of floats.
    part_.ratio.Add(static_cast<float>(ratio));
    part_.kl.Add(static_cast<float>(ratio - 1 - moved));
    part_.least = std::min(part_.least, ratio);
    part_.most = std::max(part_.most, ratio);
  }
}

void StaleTokens::Part::Join(Part other) {
  tokens += other.tokens;
  measured += other.measured;
  least = std::min(least, other.least);
  most = std::max(most, other.most);
  for (const auto& [mine, theirs] : {std::pair{&ratio, &other.ratio}, std::pair{&kl, &other.kl}}) {
    for (size_t bin = 0; bin < mine->bins().size(); ++bin) mine->bins()[bin] += theirs->bins()[bin];
  }
}

absl::Status StaleTokens::Reduce(Communicator& communicator) {
  static_assert(std::is_trivially_copyable_v<Part>);
  std::vector<Part> parts(static_cast<size_t>(communicator.world_size()));
  TANDEM_RETURN_IF_ERROR(communicator.host().AllGather(&part_, sizeof(part_), parts.data()));
  part_ = Part();
  for (const Part& part : parts) part_.Join(part);
  return absl::OkStatus();
}

void StaleTokens::AddMetrics(std::map<std::string, double>& metrics) const {
  if (!any()) return;
  metrics["partial/stale_tokens"] = part_.tokens;
  if (part_.measured == 0) return;
  metrics["partial/stale_ratio_mean"] = part_.ratio.Value() / part_.measured;
  metrics["partial/stale_ratio_min"] = part_.least;
  metrics["partial/stale_ratio_max"] = part_.most;
  metrics["partial/stale_kl"] = part_.kl.Value() / part_.measured;
}

}  // namespace tandem
