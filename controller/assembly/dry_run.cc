#include "controller/assembly/dry_run.h"

#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/device/device_memory.h"
#include "common/process/cores.h"
#include "controller/assembly/open_partial.h"
#include "controller/assembly/run_dir_look.h"
#include "controller/assembly/run_inputs.h"
#include "controller/assembly/run_options.h"
#include "controller/assembly/run_plan.h"
#include "controller/plan/plan_input.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// The folder, or the nearest one above it that exists: what is offloaded would lie on its disk.
std::string ExistingPart(std::filesystem::path folder) {
  std::error_code error;
  while (folder.has_parent_path() && folder != folder.parent_path() &&
         !std::filesystem::is_directory(folder, error)) {
    folder = folder.parent_path();
  }
  return std::filesystem::is_directory(folder, error) ? folder.string() : ".";
}

// GPUs that this host shows without a driver being asked.
int64_t GpuFiles() {
  int64_t count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename().string();
    const std::string number = name.starts_with("nvidia") ? name.substr(6) : "";
    count += !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  }
  return count;
}

// What can be told of the devices by who asks none of them.
void TellDevices(const v1::Config& config, ProgressSink& progress) {
  const int64_t pairs = config.cluster().trainers();
  if (PlansForGpu(config)) {
    const int64_t gpus = GpuFiles();
    progress.OnMessage(fmt::format("{}devices: {} GPU(s) in /dev for {} pair(s)",
                                   gpus < pairs ? "warning: " : "", gpus, pairs));
    return;
  }
  const auto cores = std::ssize(AllowedCores());
  progress.OnMessage(fmt::format("{}devices: the CPU, {} core(s) for {} pair(s) of {} thread(s)",
                                 ComputeThreads(config) > cores ? "warning: " : "", cores, pairs,
                                 ComputeThreads(config)));
}

absl::Status LookAtRunDir(const v1::Config& config) {
  const std::string& run_dir = config.cluster().run_dir();
  TANDEM_RETURN_IF_ERROR(Annotate(CheckWritable(run_dir), "cluster.run_dir"));
  if (!config.weight_sync().check_only()) {
    TANDEM_RETURN_IF_ERROR(
        Annotate(CheckWritable(config.trainer().default_local_dir()), "trainer.default_local_dir"));
  }
  return CheckNobodyThere(run_dir);
}

// The last line. No plan: none was made.
std::string MemoryVerdict(const std::optional<MemoryPlan>& plan) {
  const std::string nothing = "are fine; nothing was started";
  if (!plan) return "dry run: config, model, data and run directory " + nothing;
  if (plan->fits()) return "dry run: config, model, data, plan and run directory " + nothing;
  return "dry run: the plan does not fit; config, model, data and run directory " + nothing;
}

}  // namespace

absl::StatusOr<bool> DryRun(const v1::Config& config, ProgressSink& progress) {
  TANDEM_RETURN_IF_ERROR(LookAtRunDir(config));
  TANDEM_ASSIGN_OR_RETURN(const RunInputs inputs, LoadRunInputs(config));
  const TrainOptions train =
      MakeTrainOptions(config, inputs.tokenizer->eos_token_ids(), inputs.prompts->size());
  TANDEM_RETURN_IF_ERROR(CheckEpochs(config, train.total_steps, inputs.prompts->size()));
  progress.OnMessage(fmt::format(
      "{} prompts to train on, {} to validate with; {} steps of {} prompts x {} samples",
      inputs.prompts->size(), inputs.validation.size(), train.total_steps, train.train_batch_size,
      train.samples_per_prompt));
  std::optional<MemoryPlan> plan;
  if (PlansForGpu(config)) {
    progress.OnMessage(
        "memory: planned at the launch, when the GPUs are known; now: tandemctl plan");
  } else {
    const auto pairs = static_cast<int>(config.cluster().trainers());
    TANDEM_ASSIGN_OR_RETURN(plan, PlanRun(inputs.spec, config, CpuDeviceMemoryBytes(pairs),
                                          ExistingPart(config.cluster().run_dir()), progress));
  }
  TellDevices(config, progress);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> start,
                          ForeseeStart(config, ResumeOptionsOf(config, train, inputs)));
  for (const std::string& line : start) progress.OnMessage(line);
  progress.OnMessage(fmt::format(
      "not looked at: the values of the weights; whether cluster.listen is free; run.db; "
      "{}whether the workers start, and what their devices can do",
      config.reward().function() == "remote" ? "the reward service and its keys; " : ""));
  progress.OnMessage(MemoryVerdict(plan));
  return !plan || plan->fits();
}

}  // namespace tandem
