#include "controller/report/generation_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/report/format.h"
#include "controller/report/run_tables.h"
#include "controller/store/run_store.h"

namespace tandem {
namespace {

std::string SharePercent(double share) { return fmt::format("{:.3g} %", 100 * share); }

std::string Count(double count, const char* one) {
  return fmt::format("{:.0f} {}{}", count, one, count == 1 ? "" : "s");
}

std::string Cell(const StepRecord& step, const char* name) {
  const double value = MetricOf(step, name);
  return std::isnan(value) ? "-" : fmt::format("{:.0f}", value);
}

std::string ShareCell(const StepRecord& step, const char* name) {
  const double value = MetricOf(step, name);
  return std::isnan(value) ? "-" : SharePercent(value);
}

std::string TailsText(const MeanTail& before, const MeanTail& with) {
  if (std::isnan(with.Value())) return "";
  std::string text = fmt::format("; the tail of generation left {} of the slots empty",
                                 SharePercent(with.Value()));
  if (std::isnan(before.Value())) return text;
  return text + fmt::format(", and {} in the steps without it", SharePercent(before.Value()));
}

}  // namespace

bool HasPartial(const StepRecord& step) { return step.metrics.contains(kRounds); }

std::string PartialStepText(const StepRecord& step) {
  if (!HasPartial(step)) return "";
  std::string text = Count(NumberOf(step, kRounds), "round");
  if (const double ahead = NumberOf(step, kOverlapRounds); ahead > 0) {
    text += fmt::format(" + {:.0f} during training", ahead);
  }
  if (const double groups = NumberOf(step, kCarriedGroups); groups > 0) {
    text += fmt::format(", {} carried ({})", Count(groups, "group"),
                        Count(NumberOf(step, kCarriedSamples), "sample"));
  }
  if (const double whole = NumberOf(step, kWholeGroupsLeft); whole > 0) {
    text += fmt::format(", {} left complete", Count(whole, "group"));
  }
  if (const double ratio = NumberOf(step, kPartialRatio); ratio > 0) {
    text += fmt::format(", {} of the samples of several versions (span {:.0f})",
                        SharePercent(ratio), NumberOf(step, kPartialSpan));
  }
  if (const double tokens = NumberOf(step, kPrefilledAgain); tokens > 0) {
    text += fmt::format(", {} prefilled again", Count(tokens, "token"));
  }
  return text;
}

std::vector<std::vector<std::string>> PartialRows(const std::vector<StepRecord>& steps) {
  std::vector<std::vector<std::string>> rows;
  for (const StepRecord& step : steps) {
    if (!HasPartial(step)) continue;
    rows.push_back({fmt::to_string(step.step), Cell(step, kRounds), Cell(step, kOverlapRounds),
                    Cell(step, kCarriedGroups), Cell(step, kCarriedSamples),
                    Cell(step, kWholeGroupsLeft), ShareCell(step, kPartialRatio),
                    Cell(step, kPartialSpan), ShareCell(step, kStaleTokensShare),
                    Cell(step, kCutSamples), Cell(step, kPrefilledAgain),
                    ShareCell(step, kTailShare)});
  }
  if (rows.empty()) return rows;
  rows.insert(rows.begin(), {"step", "rounds", "ahead", "groups carried", "samples",
                             "complete left", "several versions", "span", "older tokens", "cut",
                             "prefilled again", "slots empty"});
  return rows;
}

std::string PartialText(const RunFigures& figures) {
  if (!figures.HasPartial()) return "";
  const PartialTotals& all = figures.partial;
  const auto count = static_cast<double>(all.steps);
  std::string text = fmt::format(
      "partial rollout: {}{} in {}, {} interrupted, {} prefilled again for "
      "{:.0f} generated; {} carried and {:.0f} complete in the rollout buffer at the end{}\n",
      Count(all.rounds, "round"),
      all.ahead > 0 ? fmt::format(" + {:.0f} during training", all.ahead) : "",
      Count(count, "step"), Count(all.cut, "sample"), Count(all.prefilled, "token"), all.generated,
      Count(all.carried_groups, "group"), all.whole_groups,
      TailsText(figures.tail_without_partial, figures.tail_with_partial));
  text += fmt::format(
      "{} of the samples have tokens of several versions (span up to {:.0f}); {} of "
      "a step's trained tokens are of older weights",
      SharePercent(all.partial_ratio / count), all.span, SharePercent(all.stale_share / count));
  if (all.stale > 0) {
    text += fmt::format(", {:.3g} versions old in the mean", all.ages / all.stale);
  }
  return text;
}

namespace {

// "51 would have saved 13.0 s (33 %)", to be written after the key.
std::string SplitText(const PredictedSplit& split, double generation, int64_t max_response_tokens) {
  const int64_t value =
      max_response_tokens > 0 ? (max_response_tokens + split.parts - 1) / split.parts : split.parts;
  const double share = generation > 0 ? 100 * std::abs(split.saved) / generation : 0;
  return fmt::format("{} {} {} ({:.0f} %)", value,
                     split.saved < 0 ? "would have cost" : "would have saved",
                     FormatSeconds(std::abs(split.saved)), share);
}

}  // namespace

std::string TailText(const RunFigures& figures, int64_t max_response_tokens) {
  const double share = figures.tail.Value();
  if (!(share >= kNotableTail)) return "";
  std::string text =
      fmt::format("the tail of generation left {:.0f} % of the slots empty", 100 * share);
  std::vector<PredictedSplit> splits = figures.splits;
  std::erase_if(splits, [](const PredictedSplit& split) { return split.steps == 0; });
  if (splits.empty()) return text;
  double generation = 0;
  for (const PredictedSplit& split : splits) generation = std::max(generation, split.generation);
  double best = 0;
  for (const PredictedSplit& split : splits) best = std::max(best, split.saved);
  if (!(best > 0) || best < kNotableSaving * generation) {
    return text + fmt::format("; no cap per round is predicted to save {:.0f} % of generation",
                              100 * kNotableSaving);
  }
  std::vector<std::string> caps;
  for (const PredictedSplit& split : splits) {
    caps.push_back(SplitText(split, generation, max_response_tokens));
  }
  const char* key = max_response_tokens > 0 ? "rollout.partial.max_tokens_per_round"
                                            : "algorithm.partial_rollout_max_split";
  return text + fmt::format(
                    "; of {} of generation {}={}, as predicted from its lengths "
                    "(docs/guides/partial_rollout.md: when it pays)",
                    FormatSeconds(generation), key, fmt::join(caps, ", and "));
}

}  // namespace tandem
