#include "controller/dry_run.h"

#include <filesystem>
#include <utility>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/device/device_memory.h"
#include "controller/config_options.h"
#include "controller/memory_plan_input.h"
#include "controller/report/console_progress.h"
#include "controller/run_inputs.h"
#include "controller/run_plan.h"

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

}  // namespace

absl::Status DryRun(const v1::Config& config) {
  TANDEM_ASSIGN_OR_RETURN(const RunInputs inputs, LoadRunInputs(config));
  const TrainOptions train =
      MakeTrainOptions(config, inputs.tokenizer->eos_token_ids(), inputs.prompts->size());
  TANDEM_RETURN_IF_ERROR(CheckEpochs(config, train.total_steps, inputs.prompts->size()));
  ConsoleProgress progress({});
  progress.OnMessage(fmt::format(
      "{} prompts to train on, {} to validate with; {} steps of {} prompts x {} samples",
      inputs.prompts->size(), inputs.validation.size(), train.total_steps, train.train_batch_size,
      train.samples_per_prompt));
  if (PlansForGpu(config)) {
    progress.OnMessage(
        "memory: planned at the launch, when the GPUs are known; now: tandemctl plan");
  } else {
    const auto pairs = static_cast<int>(config.cluster().trainers());
    TANDEM_RETURN_IF_ERROR(PlanRun(inputs.spec, config, CpuDeviceMemoryBytes(pairs),
                                   ExistingPart(config.cluster().run_dir()), progress)
                               .status());
  }
  progress.OnMessage("dry run: config, model, data and plan are fine; nothing was started");
  return absl::OkStatus();
}

}  // namespace tandem
