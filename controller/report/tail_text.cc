#include "controller/report/tail_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/report/format.h"
#include "controller/report/run_tables.h"
#include "controller/store/metric_names.h"

namespace tandem {
namespace {

struct Split {
  int64_t parts = 0;
  double saved = 0;  // seconds over all steps
};

// What the steps predict of a cap; none where they do not, as with a cap.
struct Predictions {
  std::vector<Split> splits;
  double generation = 0;  // seconds of the steps that have some
};

Predictions PredictionsOf(const std::vector<StepRecord>& steps) {
  Predictions found;
  for (const int64_t parts : {2, 4}) {
    Split split{parts};
    double generation = 0;
    bool predicted = false;
    for (const StepRecord& step : steps) {
      const double saved = MetricOf(step, fmt::format("{}split_{}", kPredictedSaving, parts));
      if (std::isnan(saved)) continue;
      const double seconds = MetricOf(step, kGenerationSeconds);
      split.saved += saved;
      generation += std::isnan(seconds) ? 0 : seconds;
      predicted = true;
    }
    if (!predicted) continue;
    found.splits.push_back(split);
    found.generation = std::max(found.generation, generation);
  }
  return found;
}

// "=51 would have saved 13.0 s (33 %)", after the key.
std::string SplitText(const Split& split, double generation, int64_t max_response_tokens) {
  const int64_t value =
      max_response_tokens > 0 ? (max_response_tokens + split.parts - 1) / split.parts : split.parts;
  const double share = generation > 0 ? 100 * std::abs(split.saved) / generation : 0;
  return fmt::format("{} {} {} ({:.0f} %)", value,
                     split.saved < 0 ? "would have cost" : "would have saved",
                     FormatSeconds(std::abs(split.saved)), share);
}

}  // namespace

std::string TailText(const std::vector<StepRecord>& steps, int64_t max_response_tokens) {
  double shares = 0;
  int64_t with_tail = 0;
  for (const StepRecord& step : steps) {
    const double share = MetricOf(step, kTailShare);
    if (std::isnan(share)) continue;
    shares += share;
    ++with_tail;
  }
  const double share = with_tail > 0 ? shares / static_cast<double>(with_tail) : 0;
  if (share < kNotableTail) return "";
  std::string text =
      fmt::format("the tail of generation left {:.0f} % of the slots empty", 100 * share);
  const auto [splits, generation] = PredictionsOf(steps);
  if (splits.empty()) return text;
  double best = 0;
  for (const Split& split : splits) best = std::max(best, split.saved);
  if (!(best > 0) || best < kNotableSaving * generation) {
    return text + fmt::format("; no cap per round is predicted to save {:.0f} % of generation",
                              100 * kNotableSaving);
  }
  std::vector<std::string> caps;
  for (const Split& split : splits) {
    caps.push_back(SplitText(split, generation, max_response_tokens));
  }
  const char* key = max_response_tokens > 0 ? "rollout.partial.max_tokens_per_round"
                                            : "algorithm.partial_rollout_max_split";
  return text + fmt::format(
                    "; of {} of generation {}={}, as predicted from its lengths "
                    "(docs/partial.md: when it pays)",
                    FormatSeconds(generation), key, fmt::join(caps, ", and "));
}

}  // namespace tandem
