#include "controller/report/tail_text.h"

#include <cmath>

#include <fmt/format.h>

#include "controller/report/format.h"
#include "controller/report/metric_names.h"
#include "controller/report/run_tables.h"

namespace tandem {
namespace {

struct Split {
  int64_t parts = 0;
  double saved = 0;  // seconds over all steps
};

// The better of the two that are predicted; none where the steps have no prediction, as with a cap.
Split BestSplit(const std::vector<StepRecord>& steps) {
  Split best;
  for (const int64_t parts : {2, 4}) {
    double saved = 0;
    bool predicted = false;
    for (const StepRecord& step : steps) {
      const double seconds = MetricOf(step, fmt::format("{}split_{}", kPredictedSaving, parts));
      if (std::isnan(seconds)) continue;
      saved += seconds;
      predicted = true;
    }
    if (predicted && (best.parts == 0 || saved > best.saved)) best = {parts, saved};
  }
  return best;
}

}  // namespace

std::string TailText(const std::vector<StepRecord>& steps, int64_t max_response_tokens) {
  double shares = 0, generation = 0;
  int64_t with_tail = 0;
  for (const StepRecord& step : steps) {
    const double share = MetricOf(step, kTailShare), seconds = MetricOf(step, kGenerationSeconds);
    if (std::isnan(share)) continue;
    shares += share;
    generation += std::isnan(seconds) ? 0 : seconds;
    ++with_tail;
  }
  const double share = with_tail > 0 ? shares / static_cast<double>(with_tail) : 0;
  if (share < kNotableTail) return "";
  std::string text =
      fmt::format("the tail of generation left {:.0f} % of the slots empty", 100 * share);
  const Split best = BestSplit(steps);
  if (best.parts == 0) return text;
  if (!(best.saved > 0)) return text + "; no cap per round is predicted to save time";
  const std::string key = max_response_tokens > 0
                              ? fmt::format("rollout.partial.max_tokens_per_round={}",
                                            (max_response_tokens + best.parts - 1) / best.parts)
                              : fmt::format("algorithm.partial_rollout_max_split={}", best.parts);
  return text + fmt::format("; {} would save about {} of {}, as predicted from its lengths", key,
                            FormatSeconds(best.saved), FormatSeconds(generation));
}

}  // namespace tandem
