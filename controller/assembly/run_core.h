// What a training run and a weight check have in common: inputs, workers, weight sync, the services
// that users and workers call, and messages to the user.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "controller/assembly/run_inputs.h"
#include "controller/rollouts/parity_probe.h"
#include "controller/rollouts/rollout_fleet.h"
#include "controller/rollouts/weight_sync.h"
#include "controller/run/placement.h"
#include "controller/run/resume_point.h"
#include "controller/run/run_control.h"
#include "controller/step/step_context.h"
#include "controller/step/summary/last_syncs.h"
#include "controller/step/summary/load_log.h"
#include "controller/step/train_options.h"
#include "controller/store/checkpoint_index.h"
#include "controller/store/disk/disk_wait.h"
#include "controller/store/post_mortem/blackbox.h"
#include "controller/store/post_mortem/event_log.h"
#include "controller/store/progress.h"
#include "controller/store/run_store.h"
#include "controller/store/sample_store.h"
#include "controller/store/trackers/trackers.h"
#include "controller/workers/agents/agent_registry.h"
#include "controller/workers/restart_budget.h"
#include "controller/workers/worker_pool.h"
#include "controller/workers/worker_registry.h"

namespace tandem {

class SignsOfLife;
class TandemService;
struct AssemblyOptions;

// Where a run keeps what it makes. Who opens them decides what the run may change on disk.
struct RunStores {
  std::unique_ptr<RunStore> records;
  std::unique_ptr<SampleStore> samples;
  CheckpointIndex checkpoints;
  std::unique_ptr<SampleStore> upcoming = nullptr;  // StepContext::upcoming
  std::shared_ptr<Blackbox> blackbox = nullptr;     // null: none is kept
};

// Samples are passed through files in the run directory. Errors as SampleStore::Open.
absl::StatusOr<std::unique_ptr<SampleStore>> OpenSamples(const v1::Config& config);
// For a run with trainer.off_policy_steps. Not in the folder of the samples, where it would be
// taken for samples of an earlier run.
absl::StatusOr<std::unique_ptr<SampleStore>> OpenUpcomingSamples(const v1::Config& config);

// What a run ends with after its work ended with `status`: the failure of RunControl::Fail, if
// there was one and `status` is no other reason than its consequence.
absl::Status ReasonOfEnd(const RunControl& control, const absl::Status& status);

// Order of calls: PlanAhead, MakeContext, Serve, once each.
class RunCore {
 public:
  // `check`: which weight syncs are followed by a check.
  // `run_id`: as by MakeRunId.
  RunCore(const AssemblyOptions& options,
          std::string run_id,
          RunInputs inputs,
          TrainOptions train,
          RunStores stores,
          CheckPolicy check);
  ~RunCore();

  const v1::Config& config() const { return *config_; }
  const TrainOptions& options() const { return options_; }
  const WorkerRegistry& registry() const { return registry_; }
  bool log_json() const { return log_json_; }
  RunControl& control() { return control_; }
  Placement& placement() { return *placement_; }
  const std::string& run_id() const { return run_id_; }
  EventLog& events() { return events_; }
  // JSON; complete when Serve calls `work`.
  const std::string& memory_plan() const { return memory_plan_; }

  // Makes the memory plan where it does not depend on the workers' devices: on a CPU. Errors as
  // PlanRun.
  absl::Status PlanAhead();
  // `tracker` and this object must outlive the result.
  StepContext MakeContext(Tracker& tracker);
  // Reports where the run begins, in the log and to the user.
  void TellStart(const ResumePoint& start);

  // Starts the services, runs `work`, then stops the workers and the services. On GPUs the memory
  // is planned before `work`, from what the workers say. `position`: of the run between two steps,
  // for users' calls. `work` calls RunControl::OnEnded. Errors of `work`, of the plan and of
  // RpcServer::Start. An agent that cannot mend a worker ends the run: RunControl::Fail.
  absl::Status Serve(const StepContext& context,
                     const RunPosition& position,
                     const std::function<absl::Status()>& work);

 private:
  // Makes the memory plan (PlanRun), which also decides how rollouts sleep.
  absl::Status MakePlan(int64_t device_bytes);
  // Waits for the workers to tell their GPUs, and plans.
  absl::Status PlanForGpus(TandemService& api);
  // Ends a run that cannot go on.
  void EndRun(const absl::Status& failure);
  // Tells the agents of hosts that the run is over, which takes them a beat.
  void LetAgentsGo();
  // Lets go of workers whose host is lost, so that others may run them.
  void MoveWorkers();
  void TellListening(const std::string& address, ThreadsByRole threads);

  const std::unique_ptr<const v1::Config> config_;
  const bool log_json_;
  const SignsOfLife* const signs_;
  const RunInputs inputs_;
  RunStores stores_;
  TrainOptions options_;
  const std::string run_id_;
  std::string memory_plan_;
  RunControl control_;
  const std::shared_ptr<ActiveRollouts> active_rollouts_;
  ParityProbe probe_;
  LoadLog load_;
  LastSyncs syncs_;
  WorkerRegistry registry_;
  AgentRegistry agents_;
  WorkerPool pool_;
  const std::unique_ptr<ProgressSink> shown_;
  EventLog events_;
  ProgressRelay progress_;
  RestartBudget budget_;
  const std::unique_ptr<Placement> placement_;
  WeightSync weights_;
  RolloutFleet fleet_;
  DiskWait disk_;
};

}  // namespace tandem
