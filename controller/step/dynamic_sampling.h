// Dynamic sampling in a step: applies the group filter to the samples that were scored.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/algorithm/group_filter.h"
#include "controller/step/step_batch.h"
#include "controller/store/run_store.h"
#include "controller/store/sample_store.h"

namespace tandem {

// The value of a sample under `metric`: seq_reward and seq_final_reward are the reward function's
// score with all terms; any other key is one of the numbers that it returned (score: without the
// terms; a term's name: that term). acc is the score where the function returns no acc.
// InvalidArgument: an unknown metric; the message names the keys that the sample has.
absl::StatusOr<double> FilterValue(const SampleRecord& record, const std::string& metric);

// One object per step.
class DynamicSampling {
 public:
  // `wanted`: the number of groups that the step trains on.
  DynamicSampling(const GroupFilterOptions& options, int64_t wanted);

  // Judges the groups that were scored since the last call, in the order of drawing. Removes groups
  // that are not kept from the store and the records, and adds them to batch.dropped_groups;
  // prompts keep their numbers. Errors as FilterValue and GroupFilter::EndBatch.
  absl::Status Filter(SampleStore& samples, StepBatch& batch);

  // For a step that fails and is saved for inspection: puts dropped samples (the first
  // kKeptSamples) back into the store and the records, without their texts, and sets every sample's
  // score as its outcome. Returns "and 40 of the 120 samples that were dropped" or "and all 40
  // ...", for messages; empty if none was dropped.
  std::string TakeBack(SampleStore& samples, StepBatch& batch);

  // The dropped samples (the first kKeptSamples), marked as evicted, with their prompts and without
  // their responses, in order of sample id. Call once, and not before a TakeBack.
  std::vector<SampleRecord> TakeDropped(const std::vector<Prompt>& prompts);

  bool full() const { return filter_.full(); }
  // The number of groups that the step still lacks.
  int64_t missing() const { return filter_.missing(); }
  // "5 of 8 groups after 2 batches", for messages.
  std::string ProgressText() const;
  // Adds training/filter_groups/*: num_gen_batches; evicted_groups and evicted_samples, of groups
  // whose values were all equal; evicted_value/mean, over those groups; surplus_groups;
  // generated_reward/mean, over all generated samples, dropped or not.
  void Report(StepFacts& facts) const;

 private:
  // The number of dropped samples that are kept for inspection, a few hundred bytes each.
  static constexpr int64_t kKeptSamples = 4096;

  void Drop(const std::vector<uint64_t>& ids, SampleStore& samples, StepBatch& batch);

  const std::string metric_;
  const int64_t wanted_;
  GroupFilter filter_;
  int64_t judged_ = 0;                   // prompts
  int64_t generated_ = 0, evicted_ = 0;  // samples
  double sum_of_rewards_ = 0;
  int64_t dropped_ = 0;                            // samples
  std::map<uint64_t, SampleRecord> kept_records_;  // of the dropped samples, without texts
  std::vector<SampleMeta> kept_metas_;
};

}  // namespace tandem
