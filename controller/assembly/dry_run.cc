#include "controller/assembly/dry_run.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/device/device_memory.h"
#include "common/process/cores.h"
#include "common/process/directory_lock.h"
#include "controller/assembly/carried_groups.h"
#include "controller/assembly/run_inputs.h"
#include "controller/assembly/run_options.h"
#include "controller/assembly/run_plan.h"
#include "controller/plan/copy_rate.h"
#include "controller/plan/disk_plan.h"
#include "controller/plan/plan_input.h"
#include "controller/plan/transfer_plan.h"
#include "controller/report/transfers/transfer_text.h"
#include "controller/store/checkpoint_index.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// The folder, or its nearest parent that exists: offloaded memory would be stored on its disk.
std::string ExistingPart(std::filesystem::path folder) {
  std::error_code error;
  while (folder.has_parent_path() && folder != folder.parent_path() &&
         !std::filesystem::is_directory(folder, error)) {
    folder = folder.parent_path();
  }
  return std::filesystem::is_directory(folder, error) ? folder.string() : ".";
}

// The number of GPUs that have a device file, found without asking a driver.
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

// Reports the devices as far as they are known without initializing them.
void TellDevices(const v1::Config& config, ProgressSink& progress) {
  const Topology topology = TopologyOf(config);
  if (PlansForGpu(config)) {
    const int64_t gpus = GpuFiles();
    progress.OnMessage(fmt::format("{}devices: {} GPU(s) in /dev for {}",
                                   gpus < topology.devices_per_host() ? "warning: " : "", gpus,
                                   topology.Text()));
    return;
  }
  const auto cores = std::ssize(AllowedCores());
  const ThreadsByRole threads = ComputeThreads(config);
  progress.OnMessage(
      fmt::format("{}devices: the CPU, {} core(s) for {}; {} thread(s) a trainer, {} a rollout",
                  std::max(threads.trainer, threads.rollout) > cores ? "warning: " : "", cores,
                  topology.Text(), threads.trainer, threads.rollout));
}

// What crosses between the workers, with times of shared memory by a measurement of this machine.
void TellTransfers(const ModelSpec& spec, const v1::Config& config, ProgressSink& progress) {
  const bool gpus = PlansForGpu(config);  // unknown before the launch
  const int64_t device_bytes =
      gpus ? 0 : CpuDeviceMemoryBytes(TopologyOf(config).devices_per_host());
  std::string text =
      TransferText(PlanTransfers(spec, config, device_bytes, gpus ? 0 : MeasureCopyRate()));
  text.pop_back();  // the end of the last line
  progress.OnMessage(text);
}

absl::Status CheckRunDir(const v1::Config& config) {
  return Annotate(CheckWritable(config.cluster().run_dir()), "cluster.run_dir");
}

absl::Status CheckCheckpointDir(const v1::Config& config) {
  return Annotate(CheckWritable(config.trainer().default_local_dir()), "trainer.default_local_dir");
}

// The last line of a dry run. nullopt: no plan was made.
std::string MemoryVerdict(const std::optional<MemoryPlan>& plan) {
  const std::string nothing = "are fine; nothing was started";
  if (!plan) return "dry run: config, model, data and run directory " + nothing;
  if (plan->fits()) return "dry run: config, model, data, plan and run directory " + nothing;
  return "dry run: the plan does not fit; config, model, data and run directory " + nothing;
}

// The inputs as a run loads them, and what was planned for them.
struct CheckedInputs {
  RunInputs inputs;
  TrainOptions train;
  std::optional<MemoryPlan> plan;  // nullopt: for GPUs
};

absl::StatusOr<CheckedInputs> CheckInputsAndPlan(const v1::Config& config, ProgressSink& progress) {
  TANDEM_ASSIGN_OR_RETURN(RunInputs inputs, LoadRunInputs(config));
  TANDEM_ASSIGN_OR_RETURN(TrainOptions train, CheckedTrainOptions(config, inputs));
  progress.OnMessage(fmt::format(
      "{} prompts to train on, {} to validate with; {} steps of {} prompts x {} samples",
      inputs.prompts->size(), inputs.validation.size(), train.total_steps, train.train_batch_size,
      train.samples_per_prompt));
  std::optional<MemoryPlan> plan;
  if (PlansForGpu(config)) {
    progress.OnMessage(
        "memory: planned at the launch, when the GPUs are known; now: tandemctl plan");
  } else {
    const int devices = TopologyOf(config).devices_per_host();
    TANDEM_ASSIGN_OR_RETURN(plan, PlanRun(inputs.spec, config, CpuDeviceMemoryBytes(devices),
                                          ExistingPart(LocalDirOf(config)), progress));
  }
  TellDevices(config, progress);
  for (const std::string& line : TopologyOf(config).HostLines()) progress.OnMessage(line);
  TellTransfers(inputs.spec, config, progress);
  return CheckedInputs{std::move(inputs), std::move(train), std::move(plan)};
}

// The end of a dry run: where a start would begin, what remains unknown, and whether the plan fits.
bool TellVerdict(const v1::Config& config,
                 const std::vector<std::string>& start,
                 const std::optional<MemoryPlan>& plan,
                 ProgressSink& progress) {
  for (const std::string& line : start) progress.OnMessage(line);
  progress.OnMessage(fmt::format(
      "not looked at: the values of the weights; whether cluster.listen is free; run.db; "
      "{}whether the workers start, and what their devices can do",
      config.reward().function() == "remote" ? "the reward service and its keys; " : ""));
  progress.OnMessage(MemoryVerdict(plan));
  return !plan || plan->fits();
}

// Tells what the run will write. ResourceExhausted: its checkpoints do not fit.
absl::Status CheckDisks(const v1::Config& config,
                        const CheckedInputs& checked,
                        int64_t staying_checkpoints,
                        ProgressSink& progress) {
  TANDEM_ASSIGN_OR_RETURN(
      const DiskPlan plan,
      PlanDisk(checked.inputs.spec, config, checked.train.total_steps, staying_checkpoints));
  for (const DiskLine& line : DiskPlanText(plan)) {
    progress.OnMessage((line.fits ? "" : "warning: ") + line.text);
  }
  return CheckDiskPlan(plan);
}

absl::StatusOr<bool> DryRunOfTraining(const v1::Config& config, ProgressSink& progress) {
  TANDEM_RETURN_IF_ERROR(CheckRunDir(config));
  TANDEM_RETURN_IF_ERROR(CheckCheckpointDir(config));
  TANDEM_RETURN_IF_ERROR(CheckNobodyThere(config.cluster().run_dir()));
  TANDEM_ASSIGN_OR_RETURN(const CheckedInputs checked, CheckInputsAndPlan(config, progress));
  TANDEM_ASSIGN_OR_RETURN(
      const StartPreview start,
      PreviewStart(config, MakeResumeOptions(config, checked.train, checked.inputs)));
  TANDEM_RETURN_IF_ERROR(CheckDisks(config, checked, start.staying_checkpoints, progress));
  return TellVerdict(config, start.lines, checked.plan, progress);
}

absl::StatusOr<bool> DryRunOfCheck(const v1::Config& config, ProgressSink& progress) {
  TANDEM_RETURN_IF_ERROR(CheckRunDir(config));
  TANDEM_RETURN_IF_ERROR(CheckNobodyThere(config.cluster().run_dir()));
  TANDEM_ASSIGN_OR_RETURN(const CheckedInputs checked, CheckInputsAndPlan(config, progress));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> start, PreviewCheck(config));
  return TellVerdict(config, start, checked.plan, progress);
}

}  // namespace

absl::StatusOr<bool> DryRun(const v1::Config& config, ProgressSink& progress) {
  return config.weight_sync().check_only() ? DryRunOfCheck(config, progress)
                                           : DryRunOfTraining(config, progress);
}

namespace {

namespace fs = std::filesystem;

// The missing folders of a path, deepest first.
std::vector<fs::path> MissingParts(fs::path folder) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (; !folder.empty() && !fs::exists(folder, error); folder = folder.parent_path()) {
    missing.push_back(folder);
  }
  return missing;
}

absl::Status WriteAFile(const std::string& folder) {
  const std::string path = fmt::format("{}/.dry-run-{}", folder, getpid());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) {
    return MakeStatus(IoErrorCode(errno), "cannot write into the folder {}: {}", folder,
                      std::strerror(errno));
  }
  close(fd);
  unlink(path.c_str());
  return absl::OkStatus();
}

std::vector<std::string> StartLines(const ResumePoint& point, const CheckpointIndex& checkpoints) {
  std::vector<std::string> lines;
  if (!point.note.empty()) {
    lines.push_back("a start now: " + point.note);
  } else if (point.checkpoint.empty()) {
    lines.push_back("a start now: from the model; no checkpoint is in " + checkpoints.dir());
  }
  for (const std::string& warning : point.warnings) lines.push_back("warning: " + warning);
  return lines;
}

}  // namespace

absl::Status CheckWritable(const std::string& folder) {
  const std::vector<fs::path> missing = MissingParts(folder);
  absl::Status status = MakeFolder(folder);
  if (status.ok()) status = WriteAFile(folder);
  for (const fs::path& made : missing) rmdir(made.c_str());  // fails if it is not empty
  return status;
}

absl::Status CheckNobodyThere(const std::string& run_dir) {
  // The launcher (deploy/launcher/main.cc) and run_assembly.cc hold these locks while they run.
  for (const char* who : {"launcher", "controller"}) {
    const std::string lock = fmt::format("{}.lock", who);
    if (!DirectoryLock::IsHeld(run_dir, lock)) continue;
    return MakeStatus(absl::StatusCode::kAlreadyExists,
                      "another {} is running in {} (it holds the lock {}/{}), so a start would "
                      "be refused: stop it, or choose another cluster.run_dir",
                      who, run_dir, run_dir, lock);
  }
  return absl::OkStatus();
}

absl::StatusOr<StartPreview> PreviewStart(const v1::Config& config, const ResumeOptions& options) {
  CheckpointIndex checkpoints = CheckpointIndex::OpenReadOnly(config.trainer().default_local_dir());
  TANDEM_ASSIGN_OR_RETURN(const ResumePoint point, ChooseResumePoint(config, options, checkpoints));
  return StartPreview{.lines = StartLines(point, checkpoints),
                      .staying_checkpoints = StayingCheckpoints(point, checkpoints)};
}

absl::StatusOr<std::vector<std::string>> PreviewCheck(const v1::Config& config) {
  const CheckpointIndex checkpoints =
      CheckpointIndex::OpenReadOnly(config.trainer().default_local_dir());
  TANDEM_ASSIGN_OR_RETURN(const ResumePoint point, PeekResumePoint(config, checkpoints));
  return StartLines(point, checkpoints);
}

}  // namespace tandem
