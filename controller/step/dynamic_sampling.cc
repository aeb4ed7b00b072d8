#include "controller/step/dynamic_sampling.h"

#include <map>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/base/status.h"
#include "controller/step/summary/group_metrics.h"
#include "controller/store/run_store.h"

namespace tandem {

absl::StatusOr<double> FilterValue(const SampleRecord& record, const std::string& metric) {
  if (metric == "seq_reward" || metric == "seq_final_reward") return record.reward;
  const auto& terms = record.reward_terms;
  auto found = terms.find(metric);
  if (found == terms.end() && metric == "acc") found = terms.find("score");
  if (found != terms.end()) return found->second;
  std::vector<std::string> known = {"seq_reward", "seq_final_reward"};
  for (const auto& [name, value] : terms) known.push_back(name);
  return InvalidArgument(
      "algorithm.filter_groups.metric is \"{}\", which the reward of sample {:#x} does not have: "
      "it has {}",
      metric, record.sample_id, fmt::join(known, ", "));
}

DynamicSampling::DynamicSampling(const GroupFilterOptions& options, int64_t wanted)
    : metric_(options.metric), wanted_(wanted), filter_(options, wanted) {}

absl::Status DynamicSampling::Filter(SampleStore& samples, StepBatch& batch) {
  std::map<int64_t, std::vector<const SampleRecord*>> groups;
  for (const auto& [id, record] : batch.records) {
    if (record.group >= judged_) groups[record.group].push_back(&record);
  }
  judged_ = std::ssize(batch.prompts);
  std::vector<uint64_t> dropped;
  for (const auto& [group, members] : groups) {
    std::vector<double> values;
    for (const SampleRecord* member : members) {
      TANDEM_ASSIGN_OR_RETURN(const double value, FilterValue(*member, metric_));
      values.push_back(value);
      sum_of_rewards_ += member->reward;
    }
    generated_ += std::ssize(members);
    const GroupFilter::Verdict verdict = filter_.Judge(values);
    if (verdict == GroupFilter::Verdict::kKept) continue;
    if (verdict == GroupFilter::Verdict::kAllEqual) evicted_ += std::ssize(members);
    for (const SampleRecord* member : members) dropped.push_back(member->sample_id);
    batch.dropped_groups.push_back(RecordOfGroup(group, members));
    batch.dropped_groups.back().kind = GroupKind::kEvicted;
  }
  Drop(dropped, samples, batch);
  return Annotate(filter_.EndBatch(), fmt::format("step {}", batch.step));
}

void DynamicSampling::Drop(const std::vector<uint64_t>& ids,
                           SampleStore& samples,
                           StepBatch& batch) {
  dropped_ += std::ssize(ids);
  for (const uint64_t id : ids) {
    auto record = batch.records.extract(id);
    if (record.empty() || std::ssize(kept_records_) >= kKeptSamples) continue;
    // The texts are most of a record's size.
    for (auto text :
         {&SampleRecord::prompt, &SampleRecord::response, &SampleRecord::ground_truth}) {
      record.mapped().*text = std::string();
    }
    kept_records_.insert(std::move(record));
  }
  for (SampleMeta& meta : samples.Drop(ids)) {
    if (kept_records_.contains(meta.sample_id)) kept_metas_.push_back(std::move(meta));
  }
}

std::string DynamicSampling::TakeBack(SampleStore& samples, StepBatch& batch) {
  samples.TakeBack(kept_metas_);
  batch.records.merge(kept_records_);
  for (const auto& [id, record] : batch.records) {
    samples.SetOutcome(id, {.score = record.reward, .reward = record.reward});
  }
  const int64_t kept = std::ssize(kept_metas_);
  kept_metas_.clear();
  if (dropped_ == 0) return "";
  return kept == dropped_
             ? fmt::format("and all {} samples that were dropped", dropped_)
             : fmt::format("and {} of the {} samples that were dropped", kept, dropped_);
}

std::vector<SampleRecord> DynamicSampling::TakeDropped(const std::vector<Prompt>& prompts) {
  std::vector<SampleRecord> dropped;
  for (auto& [id, record] : kept_records_) {
    const Prompt& prompt = prompts.at(static_cast<size_t>(record.group));
    record.evicted = true;
    record.prompt = prompt.text;
    record.ground_truth = prompt.ground_truth;
    dropped.push_back(std::move(record));
  }
  kept_records_.clear();
  return dropped;
}

std::string DynamicSampling::ProgressText() const {
  return fmt::format("{} of {} groups after {} batch{}", filter_.kept(), wanted_, filter_.batches(),
                     filter_.batches() == 1 ? "" : "es");
}

void DynamicSampling::Report(StepFacts& facts) const {
  const std::string prefix = "training/filter_groups/";
  facts.trainer[kGenerationBatches] = static_cast<double>(filter_.batches());
  facts.trainer[prefix + "evicted_groups"] = static_cast<double>(filter_.all_equal());
  facts.trainer[prefix + "evicted_samples"] = static_cast<double>(evicted_);
  facts.trainer[prefix + "surplus_groups"] = static_cast<double>(filter_.surplus());
  if (filter_.all_equal() > 0) {
    facts.trainer[prefix + "evicted_value/mean"] = filter_.mean_of_all_equal();
  }
  if (generated_ > 0) {
    facts.trainer[prefix + "generated_reward/mean"] =
        sum_of_rewards_ / static_cast<double>(generated_);
  }
}

}  // namespace tandem
