#include "controller/run/evaluation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "controller/algorithm/validation_metrics.h"
#include "controller/step/scoring.h"
#include "controller/step/summary/sample_facts.h"
#include "controller/store/run_store.h"

namespace tandem {
namespace {

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

// What is known of a response before it is scored, without its texts.
SampleRecord UnscoredRecord(const Sample& sample,
                            const EvaluationRequest& request,
                            absl::Time now) {
  SampleRecord record{.sample_id = sample.sample_id,
                      .step = request.step,
                      .group = sample.group,
                      .index = static_cast<int64_t>(sample.sample_id & 0xfffu),
                      .response_tokens = sample.response_tokens(),
                      .finish_reason = sample.finish_reason,
                      .weight_version = request.version,
                      .arrived_us = absl::ToUnixMicros(now)};
  AddTokenFacts(sample, record);
  return record;
}

// Moves texts and scores into the records; all are in the same order.
void AddScores(std::vector<RewardItem>& items,
               const std::vector<RewardScore>& scores,
               std::vector<SampleRecord>& records) {
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].prompt = std::move(items[i].prompt);
    records[i].response = std::move(items[i].response);
    records[i].ground_truth = std::move(items[i].ground_truth);
    records[i].reward = scores[i].score;
    records[i].reward_terms = scores[i].extras;
  }
}

// Groups the scores of all samples by prompt, in order of prompt and sample.
std::vector<ValidationPrompt> ByPrompt(const std::vector<Prompt>& prompts,
                                       const std::vector<int64_t>& prompt_of,
                                       const std::vector<RewardScore>& scores) {
  std::vector<ValidationPrompt> judged;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (i == 0 || prompt_of[i] != prompt_of[i - 1]) {
      const Prompt& prompt = prompts[static_cast<size_t>(prompt_of[i])];
      judged.push_back({.data_source = prompt.data_source, .data_row = prompt.data_row});
    }
    ValidationPrompt& group = judged.back();
    ++group.samples;
    group.values["reward"].push_back(scores[i].score);
    for (const auto& [key, value] : scores[i].extras) {
      if (key != "reward") group.values[key].push_back(value);
    }
    if (scores[i].prediction) group.predictions.push_back(*scores[i].prediction);
  }
  return judged;
}

// Adds val/reward/mean, the mean over prompts of each prompt's mean, and val/reward/ci95, half the
// width of its 95 % confidence interval with prompts taken as independent.
void AddOverall(const std::vector<ValidationPrompt>& prompts,
                std::map<std::string, double>& metrics) {
  std::vector<double> means;
  for (const ValidationPrompt& prompt : prompts) {
    means.push_back(MeanAndStd(prompt.values.at("reward")).mean);
  }
  metrics[kValRewardMean] = MeanAndStd(means).mean;
  metrics[kValRewardInterval] = HalfWidthOf95Percent(means);
}

}  // namespace

absl::StatusOr<EvaluationRecord> Evaluate(const StepContext& context,
                                          const EvaluationRequest& request) {
  const std::vector<Prompt>& prompts = context.validation;
  if (prompts.empty()) return FailedPrecondition("there are no prompts in data.val_files");
  const size_t count = request.max_prompts > 0
                           ? std::min(prompts.size(), static_cast<size_t>(request.max_prompts))
                           : prompts.size();
  const Instant start = context.clock.Now();
  const auto total = static_cast<int64_t>(count) * request.samples;
  // Ordered by prompt and sample, so that the sums below do not depend on the order of arrival.
  std::map<std::pair<int64_t, int64_t>, std::pair<RewardItem, SampleRecord>> items;
  int64_t response_tokens = 0;
  context.progress.OnPhase(request.step, "evaluate");
  const auto take = [&](Sample sample) {
    const Prompt& prompt = prompts[static_cast<size_t>(sample.group)];
    response_tokens += sample.response_tokens();
    SampleRecord record = UnscoredRecord(sample, request, context.clock.WallNow());
    auto& item = items[{sample.group, record.index}];
    item = {MakeRewardItem(context.text, prompt, sample), std::move(record)};
    context.progress.OnPhaseProgress(request.step, static_cast<int64_t>(items.size()), total);
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(context.fleet.Generate(
      MakeGroups(prompts, count, request), request.version, take,
      {.budget_owner = request.budget_owner, .abandoned = request.abandoned}));

  std::vector<RewardItem> ordered;
  std::vector<SampleRecord> responses;
  std::vector<int64_t> prompt_of;
  for (auto& [key, item] : items) {
    prompt_of.push_back(key.first);
    ordered.push_back(std::move(item.first));
    responses.push_back(std::move(item.second));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<RewardScore> scores, ScoreAll(context.reward, ordered));
  const std::vector<ValidationPrompt> judged = ByPrompt(prompts, prompt_of, scores);
  ValidationResult result = SummarizeValidation(judged);
  for (const std::string& missing : result.incomplete) {
    context.progress.OnMessage("validation: the reward function does not give every response of " +
                               missing + "; there are no metrics of it");
  }
  EvaluationRecord record{.step = request.step,
                          .version = request.version,
                          .prompts = static_cast<int64_t>(count),
                          .samples = total,
                          .metrics = std::move(result.metrics)};
  AddOverall(judged, record.metrics);
  record.metrics["val/response_length/mean"] =
      total > 0 ? static_cast<double>(response_tokens) / static_cast<double>(total) : 0.0;
  AddScores(ordered, scores, responses);
  record.responses = std::move(responses);
  record.seconds = absl::ToDoubleSeconds(context.clock.Now() - start);
  return record;
}

}  // namespace tandem
