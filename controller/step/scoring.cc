#include "controller/step/scoring.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "controller/step/summary/sample_facts.h"

namespace tandem {

RewardItem MakeRewardItem(const PromptCodec& text, const Prompt& prompt, const Sample& sample) {
  const std::vector<int32_t> response(sample.tokens.begin() + sample.prompt_tokens,
                                      sample.tokens.end());
  return {.sample_id = sample.sample_id,
          .data_source = prompt.data_source,
          .prompt = prompt.text,
          .response = text.Decode(response),
          .ground_truth = prompt.ground_truth,
          .extra_info_json = prompt.extra_info_json,
          .response_tokens = sample.response_tokens(),
          .truncated = sample.finish_reason == FinishReason::kLength};
}

namespace {

constexpr size_t kChunk = 256;  // samples whose arrays are in memory at the same time

SampleRecord MakeRecord(int64_t step, const SampleMeta& meta, RewardItem item, RewardScore score) {
  return {.sample_id = meta.sample_id,
          .step = step,
          .group = meta.group,
          .index = meta.index,
          .prompt = std::move(item.prompt),
          .response = std::move(item.response),
          .ground_truth = std::move(item.ground_truth),
          .reward = score.score,
          .response_tokens = meta.response_tokens,
          .finish_reason = meta.finish_reason,
          .weight_version = meta.weight_version,
          .reward_terms = std::move(score.extras),
          .segments = meta.response_segments,
          .token_offset = meta.offset,
          .arrived_us = meta.arrived_us};
}

absl::Status CheckFinite(const RewardItem& item, const RewardScore& score) {
  const auto check = [&item](const std::string& key, double value) {
    if (std::isfinite(value)) return absl::OkStatus();
    return MakeStatus(
        absl::StatusCode::kUnknown,
        "sample {:#x}, a response to prompt {} of the data (from 0, filtered ones left "
        "out; data_source \"{}\"): the reward's {} is {}, which would spread to every "
        "number computed from it; correct the service (reward.service_address), or the "
        "weights of reward.terms",
        item.sample_id, item.sample_id >> 24, item.data_source, key, value);
  };
  // The extras are checked first, as one of them is the cause of a score that is not finite.
  for (const auto& [key, value] : score.extras) TANDEM_RETURN_IF_ERROR(check(key, value));
  return check("score with all terms", score.score);
}

}  // namespace

absl::StatusOr<std::vector<RewardScore>> ScoreAll(RewardFunction& reward,
                                                  const std::vector<RewardItem>& items) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<RewardScore> scores, reward.Score(items));
  if (scores.size() != items.size()) {
    return Internal("the reward function gave {} scores for {} responses", scores.size(),
                    items.size());
  }
  for (size_t i = 0; i < items.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(CheckFinite(items[i], scores[i]));
  }
  return scores;
}

absl::Status RewardSamples(const PromptCodec& text,
                           RewardFunction& reward,
                           SampleStore& samples,
                           StepBatch& batch) {
  std::vector<SampleMeta> metas = samples.Metas();
  std::erase_if(metas, [&](const auto& meta) { return batch.records.contains(meta.sample_id); });
  for (size_t begin = 0; begin < metas.size(); begin += kChunk) {
    const size_t end = std::min(begin + kChunk, metas.size());
    std::vector<RewardItem> items;
    std::vector<SampleRecord> facts(end - begin);  // of the tokens
    for (size_t i = begin; i < end; ++i) {
      const Prompt& prompt = batch.prompts.at(static_cast<size_t>(metas[i].group));
      TANDEM_ASSIGN_OR_RETURN(const Sample sample, samples.Read(metas[i].sample_id));
      items.push_back(MakeRewardItem(text, prompt, sample));
      AddTokenFacts(sample, facts[i - begin]);
    }
    TANDEM_ASSIGN_OR_RETURN(std::vector<RewardScore> scores, ScoreAll(reward, items));
    for (size_t i = begin; i < end; ++i) {
      SampleRecord record = MakeRecord(batch.step, metas[i], std::move(items[i - begin]),
                                       std::move(scores[i - begin]));
      record.prompt_tokens = facts[i - begin].prompt_tokens;
      record.min_log_prob = facts[i - begin].min_log_prob;
      record.repetition = facts[i - begin].repetition;
      batch.records[metas[i].sample_id] = std::move(record);
    }
  }
  return absl::OkStatus();
}

void AverageRewardTerms(StepBatch& batch) {
  std::map<std::string, std::pair<double, int64_t>> sums;  // sum, and number of samples
  for (const auto& [id, record] : batch.records) {
    for (const auto& [name, value] : record.reward_terms) {
      sums[name].first += value;
      ++sums[name].second;
    }
  }
  for (const auto& [name, sum] : sums) {
    batch.facts.reward_terms[name] = sum.first / static_cast<double>(sum.second);
  }
}

}  // namespace tandem
