// The data of the step in progress.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "controller/data/prompt.h"
#include "controller/partial_rollout/tail_model.h"
#include "controller/step/greedy_baselines.h"
#include "controller/step/mini_batches.h"
#include "controller/step/phase_recorder.h"
#include "controller/step/step_metrics.h"
#include "controller/store/progress.h"
#include "controller/store/run_store.h"
#include "controller/workers/trainer_client.h"

namespace tandem {

struct StepBatch {
  StepBatch(int64_t step_number, WorkerPool& pool, ProgressSink& progress, Clock& clock)
      : step(step_number), phases(step_number, pool, progress, clock), tail(clock) {}

  const int64_t step;
  // Group g samples prompts[g]. Dynamic sampling appends the prompts of further batches; groups
  // that it drops keep their prompt and lose their samples.
  std::vector<Prompt> prompts;
  PhaseRecorder phases;
  TailRecorder tail;  // of the generate phase
  StepFacts facts;
  StepDetails details;
  std::map<uint64_t, SampleRecord> records;  // by sample id; filled by RewardSamples
  // What dynamic sampling dropped: all groups, and their samples as DynamicSampling::TakeDropped
  // has them.
  std::vector<GroupRecord> dropped_groups;
  std::vector<SampleRecord> dropped;
  std::vector<UpdateRecord> updates;           // of the step so far
  GreedyBaselines baselines;                   // used by remax only
  std::map<int64_t, double> baseline_rewards;  // rewards of the baselines, by group
  int64_t version = 0;                         // of the weights that sample the step
  // Of the batch's log-probs before the first update, by rank; empty: no pass scored the batch.
  std::vector<ReportedComparison> comparisons;
  bool is_last = false;  // of the run

  // The current or last pass over the samples in training.
  int64_t epoch = 0;
  std::vector<MiniBatch> plan;
  int64_t mini_batch = -1;  // index of the mini-batch in training
};

}  // namespace tandem
