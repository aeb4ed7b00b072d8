#include "controller/assembly/run_plan.h"

#include <algorithm>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/formats/free_space.h"
#include "common/lora/lora_spec.h"
#include "controller/plan/plan_advice.h"
#include "controller/plan/plan_input.h"
#include "controller/report/memory_text.h"
#include "tandem/v1/config.pb.h"

namespace tandem {

absl::StatusOr<MemoryPlan> PlanRun(const ModelSpec& spec,
                                   const v1::Config& config,
                                   int64_t device_bytes,
                                   const std::string& offload_dir,
                                   ProgressSink& progress) {
  MemoryPlan plan = PlanMemory(spec, MakeMemoryPlanInput(spec, config, device_bytes));
  // A local folder is each host's own.
  const int64_t trainers = config.cluster().local_dir().empty()
                               ? config.cluster().trainers()
                               : TopologyOf(config).trainers_per_host();
  TANDEM_RETURN_IF_ERROR(CheckOffloadSpace(plan, trainers, offload_dir, FreeBytesIn(offload_dir)));
  LogInfo("{}", MemoryPlanText(plan));
  if (config.model().lora().rank() > 0) {
    TANDEM_ASSIGN_OR_RETURN(const LoraSpec lora, MakeLoraSpec(spec, LoraOptionsOf(config)));
    progress.OnMessage(
        fmt::format("LoRA: rank {}, alpha {:g}, on {} modules: {} of {} parameters "
                    "are trained",
                    lora.rank, lora.alpha, lora.targets.size(), lora.parameters(),
                    spec.parameters() + lora.parameters()));
  }
  progress.OnMessage(fmt::format("memory plan of {}: {}", plan.apart ? "a device" : "a pair",
                                 MemoryPlanSummary(plan)));
  if (!plan.fits()) {
    const PlanTarget target = PlansForGpu(config) ? PlanTarget::kGpu : PlanTarget::kHostShare;
    const PlanAdvices advices = AdviseOnMemory(spec, config, device_bytes, target);
    progress.OnMessage("memory may run out; what to change:\n" + AdviceText(advices));
  }
  return plan;
}

absl::StatusOr<int64_t> AwaitGpuBytes(WorkerPool& pool,
                                      const WorkerRegistry& registry,
                                      absl::Duration timeout,
                                      const std::function<bool()>& interrupted) {
  TANDEM_RETURN_IF_ERROR(pool.WaitUntilComplete(timeout, interrupted));
  int64_t least = 0;
  for (const WorkerEntry& worker : registry.Workers()) {
    const int64_t bytes = worker.announcement.device_memory_bytes;
    if (bytes > 0 && (least == 0 || bytes < least)) least = bytes;
  }
  if (least > 0) return least;
  return FailedPrecondition(
      "no worker has said how much memory its GPU has: workers and controller are of different "
      "builds; use one build");
}

int64_t OffloadedBytes(const MemoryPlan& plan) {
  int64_t most = 0;
  for (const PlannedPhase& phase : plan.phases) {
    int64_t bytes = 0;
    for (const MemoryLine& line : phase.lines) {
      bytes += line.location == Location::kFile ? line.bytes : 0;
    }
    most = std::max(most, bytes);
  }
  return most;
}

absl::Status CheckOffloadSpace(const MemoryPlan& plan,
                               int64_t trainers,
                               const std::string& directory,
                               std::optional<int64_t> free_bytes) {
  const int64_t bytes = trainers * OffloadedBytes(plan);
  if (!free_bytes || bytes <= *free_bytes) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kResourceExhausted,
                    "offloaded memory of {} trainers takes {} bytes ({} MiB) of files in {}, where "
                    "{} bytes ({} MiB) are free: make room there, choose another cluster.run_dir, "
                    "or offload less",
                    trainers, bytes, bytes >> 20, directory, *free_bytes, *free_bytes >> 20);
}

}  // namespace tandem
