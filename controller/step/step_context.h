// References to the run's services that the phases of a step use; controller/assembly makes them.
#pragma once

#include <functional>
#include <vector>

#include "common/base/clock.h"
#include "controller/data/prompt.h"
#include "controller/reward/reward_function.h"
#include "controller/rollouts/parity_probe.h"
#include "controller/rollouts/rollout_fleet.h"
#include "controller/rollouts/weight_sync.h"
#include "controller/store/checkpoint_index.h"
#include "controller/store/disk/disk_wait.h"
#include "controller/store/progress.h"
#include "controller/store/run_store.h"
#include "controller/store/sample_store.h"
#include "controller/store/trackers/trackers.h"
#include "controller/workers/worker_pool.h"

namespace tandem {

// All references must outlive the train loop.
struct StepContext {
  WorkerPool& pool;
  WeightSync& weights;
  RolloutFleet& fleet;
  RestartBudget& budget;
  PromptSource& prompts;
  RewardFunction& reward;
  const PromptCodec& text;
  SampleStore& samples;
  // The next step's samples, once they are generated; null unless trainer.off_policy_steps is set.
  SampleStore* upcoming = nullptr;
  ParityProbe& probe;
  RunStore& store;
  Tracker& tracker;
  ProgressSink& progress;
  CheckpointIndex& checkpoints;
  DiskWait& disk;
  Clock& clock;
  std::vector<Prompt> validation;
  std::function<bool()> interrupted;  // true: stop now, without waiting for the end of the step
  // LoadLog::Take; empty: no load is recorded.
  std::function<std::vector<LoadRecord>()> take_load = {};
  // LastSyncs::Note, once a step; empty: nobody is told.
  std::function<void(const std::vector<SyncRecord>&)> note_syncs = {};
};

// The state of a run between two steps.
struct RunPosition {
  int64_t finished_steps = 0;
  int64_t version = 0;
  DataPosition data;
  double kl_coef = 0;  // for the next step's KL penalty in the reward
  int64_t skipped_in_a_row =
      0;  // number of consecutive optimizer steps, up to the newest, without a finite gradient norm
};

}  // namespace tandem
