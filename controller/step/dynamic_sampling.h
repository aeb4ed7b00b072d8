// Dynamic sampling in a step: what the group filter makes of the samples that were scored.
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

// What a sample is worth by `metric`: seq_reward and seq_final_reward are the score of the reward
// function with all terms; any other key is one of its numbers (score: without the terms; a term's
// name: that term). acc is the score where the function gives no acc. InvalidArgument names the
// keys that there are.
absl::StatusOr<double> FilterValue(const SampleRecord& record, const std::string& metric);

// One per step.
class DynamicSampling {
 public:
  // `wanted`: groups of the step.
  DynamicSampling(const GroupFilterOptions& options, int64_t wanted);

  // Judges the groups that were scored since the last call, in order of drawing. Those that are
  // not kept leave the store and the records; prompts keep their numbers. Errors as
  // FilterValue and GroupFilter::EndBatch.
  absl::Status Filter(SampleStore& samples, StepBatch& batch);

  // Of a step that is not made, to be looked at: dropped samples (the first kKeptSamples) are
  // in the store and the records again, without their texts, and every sample has its score as
  // outcome. Returns "and 40 of the 120 samples that were dropped" or "and all 40 ...", for
  // people; empty where none was.
  std::string TakeBack(SampleStore& samples, StepBatch& batch);

  bool full() const { return filter_.full(); }
  // Groups that the step lacks.
  int64_t missing() const { return filter_.missing(); }
  // "5 of 8 groups after 2 batches", for people.
  std::string ProgressText() const;
  // training/filter_groups/*: num_gen_batches; evicted_groups and evicted_samples, whose groups
  // were all equal; evicted_value/mean, over those groups; surplus_groups; generated_reward/mean,
  // over all that was generated, dropped or not.
  void Report(StepFacts& facts) const;

 private:
  // Of what was dropped this much is kept, a few hundred bytes each.
  static constexpr int64_t kKeptSamples = 4096;

  void Drop(const std::vector<uint64_t>& ids, SampleStore& samples, StepBatch& batch);

  const std::string metric_;
  const int64_t wanted_;
  GroupFilter filter_;
  int64_t judged_ = 0;                   // prompts
  int64_t generated_ = 0, evicted_ = 0;  // samples
  double sum_of_rewards_ = 0;
  int64_t dropped_ = 0;                            // samples
  std::map<uint64_t, SampleRecord> kept_records_;  // of them, without texts
  std::vector<SampleMeta> kept_metas_;
};

}  // namespace tandem
