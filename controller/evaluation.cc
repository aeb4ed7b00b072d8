#include "controller/evaluation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "controller/reward_item.h"
#include "controller/scoring.h"

namespace tandem {
namespace {

using ScoresByPrompt = std::map<int64_t, std::vector<double>>;

std::vector<GroupRequest> MakeGroups(const std::vector<Prompt>& prompts,
                                     size_t count,
                                     const EvaluationRequest& request) {
  std::vector<GroupRequest> groups;
  for (size_t i = 0; i < count; ++i) {
    GroupRequest group{.request_id = fmt::format("val-{}-{}", request.step, i),
                       .version = request.version,
                       .prompt = prompts[i].tokens,
                       .params = request.sampling,
                       .group = static_cast<int64_t>(i)};
    for (int64_t k = 0; k < request.samples; ++k) {
      group.sample_ids.push_back(
          MakeSampleId(prompts[i].data_row, kValidationEpoch, static_cast<uint64_t>(k)));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

struct Summary {
  double mean = 0, best = 0, deviation = 0;
  double interval = 0;  // half the width of the mean's 95 % interval, prompts being independent
};

// Means over prompts of each prompt's mean, best and standard deviation.
Summary Summarize(const std::vector<const std::vector<double>*>& prompts) {
  Summary summary;
  double sum_of_squares = 0;
  for (const std::vector<double>* scores : prompts) {
    const auto count = static_cast<double>(scores->size());
    double mean = 0, squares = 0;
    for (const double score : *scores) mean += score / count;
    for (const double score : *scores) squares += (score - mean) * (score - mean);
    summary.mean += mean;
    sum_of_squares += mean * mean;
    summary.best += *std::max_element(scores->begin(), scores->end());
    summary.deviation += std::sqrt(squares / count);
  }
  const double groups = std::max<double>(1, static_cast<double>(prompts.size()));
  const double mean = summary.mean / groups;
  const double variance =
      groups > 1 ? std::max(0.0, sum_of_squares - groups * mean * mean) / (groups - 1) : 0.0;
  return {.mean = mean,
          .best = summary.best / groups,
          .deviation = summary.deviation / groups,
          .interval = 1.96 * std::sqrt(variance / groups)};
}

std::map<std::string, double> SourceMetrics(const std::vector<Prompt>& prompts,
                                            const ScoresByPrompt& scores,
                                            int64_t n) {
  std::map<std::string, std::vector<const std::vector<double>*>> by_source;
  std::vector<const std::vector<double>*> all;
  for (const auto& [prompt, values] : scores) {
    by_source[prompts[static_cast<size_t>(prompt)].data_source].push_back(&values);
    all.push_back(&values);
  }
  std::map<std::string, double> metrics;
  for (const auto& [source, values] : by_source) {
    const Summary summary = Summarize(values);
    const std::string prefix = fmt::format("val-core/{}/reward/", source);
    metrics[fmt::format("{}mean@{}", prefix, n)] = summary.mean;
    if (n > 1) {
      metrics[fmt::format("{}best@{}/mean", prefix, n)] = summary.best;
      metrics[fmt::format("val-aux/{}/reward/std@{}", source, n)] = summary.deviation;
    }
  }
  const Summary overall = Summarize(all);
  metrics["val/reward/mean"] = overall.mean;
  metrics["val/reward/ci95"] = overall.interval;
  return metrics;
}

}  // namespace

absl::StatusOr<EvaluationRecord> Evaluate(const RunParts& parts, const EvaluationRequest& request) {
  const std::vector<Prompt>& prompts = parts.validation;
  if (prompts.empty()) return FailedPrecondition("there are no prompts in data.val_files");
  const size_t count = request.max_prompts > 0
                           ? std::min(prompts.size(), static_cast<size_t>(request.max_prompts))
                           : prompts.size();
  const absl::Time start = parts.clock.Now();
  const auto total = static_cast<int64_t>(count) * request.samples;
  // Ordered by sample: the sums below must not depend on the order of arrival.
  std::map<std::pair<int64_t, int64_t>, RewardItem> items;
  int64_t response_tokens = 0;
  parts.progress.OnPhase(request.step, "evaluate");
  const auto take = [&](Sample sample) {
    const Prompt& prompt = prompts[static_cast<size_t>(sample.group)];
    const auto index = static_cast<int64_t>(sample.sample_id & 0xfffu);
    response_tokens += sample.response_tokens();
    items[{sample.group, index}] = MakeRewardItem(parts.text, prompt, sample);
    parts.progress.OnPhaseProgress(request.step, static_cast<int64_t>(items.size()), total);
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(parts.serving.Generate(MakeGroups(prompts, count, request),
                                                request.version, take, {.payer = request.payer}));

  std::vector<RewardItem> ordered;
  std::vector<int64_t> prompt_of;
  for (auto& [key, item] : items) {
    prompt_of.push_back(key.first);
    ordered.push_back(std::move(item));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<RewardScore> scores, ScoreAll(parts.reward, ordered));
  ScoresByPrompt by_prompt;
  for (size_t i = 0; i < scores.size(); ++i) by_prompt[prompt_of[i]].push_back(scores[i].score);

  EvaluationRecord record{.step = request.step,
                          .version = request.version,
                          .prompts = static_cast<int64_t>(count),
                          .samples = total,
                          .metrics = SourceMetrics(prompts, by_prompt, request.samples)};
  record.metrics["val/response_length/mean"] =
      total > 0 ? static_cast<double>(response_tokens) / static_cast<double>(total) : 0.0;
  record.seconds = absl::ToDoubleSeconds(parts.clock.Now() - start);
  return record;
}

}  // namespace tandem
