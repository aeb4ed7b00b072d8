#include "controller/cli/memory_command.h"

#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/config/check.h"
#include "common/config/config.h"
#include "common/config/loaded_config.h"
#include "common/device/device_memory.h"
#include "common/formats/files.h"
#include "common/net/worker_codec.h"
#include "common/process/exit_code.h"
#include "controller/algorithm/advantage_estimator.h"
#include "controller/plan/copy_rate.h"
#include "controller/plan/lora_checks.h"
#include "controller/plan/memory_plan.h"
#include "controller/plan/plan_advice.h"
#include "controller/plan/plan_input.h"
#include "controller/plan/transfer_plan.h"
#include "controller/report/memory_html.h"
#include "controller/report/memory_text.h"
#include "controller/report/transfers/transfer_text.h"
#include "controller/store/sqlite/record_json.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {
namespace {

// A plan without phases if the text is not a plan, because an older build wrote the run.
MemoryPlan PlanFromJson(const std::string& json) {
  auto plan = MemoryPlanFromJson(json);
  return plan.ok() ? *std::move(plan) : MemoryPlan{};
}

PhaseTime PhaseFromProto(const v1::PhaseTime& proto) {
  PhaseTime phase{proto.phase(), proto.seconds(), proto.peak_bytes(), {}};
  for (const v1::WorkerMemory& worker : proto.workers()) {
    phase.workers.push_back(
        {worker.role() == v1::ROLE_TRAINER, worker.rank(), FromProto(worker.ledger())});
  }
  return phase;
}

std::string ToJson(const StepMemory& memory) {
  nlohmann::json phases = nlohmann::json::array();
  for (const PhaseTime& phase : memory.phases) {
    const PlannedPhase* planned = memory.plan.Find(phase.phase);
    nlohmann::json entry = {{"phase", phase.phase},
                            {"seconds", phase.seconds},
                            {"peak_bytes", phase.peak_bytes},
                            {"workers", nlohmann::json::parse(WorkersToJson(phase.workers))}};
    if (planned != nullptr) entry["planned_bytes"] = memory.plan.LedgerDeviceBytes(*planned);
    phases.push_back(std::move(entry));
  }
  nlohmann::json json = {{"step", memory.step}, {"phases", phases}};
  if (!memory.note.empty()) json["note"] = memory.note;
  if (!memory.plan.phases.empty()) {
    json["plan"] = nlohmann::json::parse(MemoryPlanToJson(memory.plan));
  }
  return json.dump() + "\n";
}

}  // namespace

StepMemory MakeStepMemory(const v1::GetStatusResponse& status, const v1::ListStepsResponse& steps) {
  StepMemory memory{.plan = PlanFromJson(status.memory_plan())};
  if (steps.steps_size() > 0) {
    const v1::StepRecord& step = steps.steps(steps.steps_size() - 1);
    memory.step = step.step();
    memory.state = fmt::format("{}, step {}", status.run_id(), step.step());
    memory.note = NoteOnStep(memory.step);
    for (const v1::PhaseTime& phase : step.phases()) memory.phases.push_back(PhaseFromProto(phase));
    return memory;
  }
  memory.state = fmt::format("{}, no step is finished: now", status.run_id());
  memory.note =
      "the workers' current ledgers, with peaks since each worker's last phase began; seconds and "
      "phases appear with the first finished step, the optimizer's state at the end of that step";
  PhaseTime now{.phase = status.phase().empty() ? "now" : status.phase()};
  for (const v1::WorkerStatus& worker : status.workers()) {
    now.workers.push_back({worker.worker().role() == v1::ROLE_TRAINER, worker.worker().rank(),
                           FromProto(worker.ledger())});
  }
  memory.phases.push_back(std::move(now));
  return memory;
}

absl::Status PrintMemory(const StepMemory& memory,
                         const MemoryOptions& options,
                         std::ostream& out) {
  out << (options.json ? ToJson(memory) : StepMemoryText(memory));
  if (options.html.empty()) return absl::OkStatus();
  return WriteFileAtomically(options.html, MemoryHtml(memory.state, memory));
}

namespace {

nlohmann::json AdviceJson(const std::vector<PlanAdvice>& advices) {
  nlohmann::json json = nlohmann::json::array();
  for (const PlanAdvice& advice : advices) {
    json.push_back({{"setting", advice.setting},
                    {"saved_bytes", advice.saved_bytes},
                    {"kv_pool", advice.pool},
                    {"enough", advice.enough}});
  }
  return json;
}

// The inputs of a plan, from the flags and the configuration file.
struct Configured {
  v1::Config config;
  int64_t bytes = 0;
  PlanTarget target = PlanTarget::kHostShare;
};

absl::StatusOr<Configured> Configure(const PlanOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(LoadedConfig loaded, LoadConfig(options.config, options.overrides));
  TANDEM_RETURN_IF_ERROR(
      CheckConfigValues(loaded, std::array<ConfigCheck, 1>{CheckAdvantageEstimator}));
  Configured configured{.config = std::move(loaded.config)};
  TANDEM_ASSIGN_OR_RETURN(
      configured.bytes,
      PlannedDeviceBytes(options.device_memory, configured.config, CpuDeviceMemoryBytes));
  if (!options.device_memory.empty()) configured.target = PlanTarget::kGpu;
  return configured;
}

absl::Status ModelError(const absl::Status& status) {
  if (!absl::IsNotFound(status)) return Annotate(status, "model.path");
  std::error_code error;
  return MakeStatus(status.code(),
                    "model.path: {}; a relative path starts at the current directory, {}",
                    std::string(status.message()), std::filesystem::current_path(error).string());
}

PlanOutcome Failed(FailedAt stage, const absl::Status& status) {
  return {.exit_code = ExitCodeAt(stage, status), .error = status};
}

}  // namespace

PlanOutcome PlanCommand(const PlanOptions& options, std::ostream& out) {
  const absl::StatusOr<Configured> input = Configure(options);
  if (!input.ok()) return Failed(FailedAt::kConfig, input.status());
  const absl::StatusOr<ModelSpec> spec = LoadModelSpec(input->config.model().path());
  if (!spec.ok()) return Failed(FailedAt::kInputs, ModelError(spec.status()));
  const absl::Status lora = CheckLoraInputs(input->config, *spec);
  if (!lora.ok()) return Failed(FailedAt::kInputs, lora);
  const std::string warning = LoraWarning(input->config);
  const MemoryPlan plan =
      PlanMemory(*spec, MakeMemoryPlanInput(*spec, input->config, input->bytes));
  const PlanAdvices advices = AdviseOnMemory(*spec, input->config, input->bytes, input->target);
  // Another machine's memory is not measured here.
  const double copied = options.device_memory.empty() ? MeasureCopyRate() : 0;
  const TransferPlan transfers = PlanTransfers(*spec, input->config, input->bytes, copied);
  if (options.json) {
    nlohmann::json json = nlohmann::json::parse(MemoryPlanToJson(plan));
    json["advice"] = AdviceJson(advices.alone);
    json["together"] = AdviceJson(advices.together);
    json["transfers"] = nlohmann::json::parse(TransferPlanToJson(transfers));
    if (!warning.empty()) json["warning"] = warning;
    out << json.dump() << "\n";
  } else {
    if (!warning.empty()) out << "warning: " << warning << "\n";
    for (const std::string& line : TopologyOf(input->config).HostLines()) out << line << "\n";
    out << MemoryPlanText(plan) << TransferText(transfers);
    if (!plan.fits()) out << AdviceText(advices);
  }
  if (!options.html.empty()) {
    const absl::Status written =
        WriteFileAtomically(options.html, MemoryHtml(options.config, {.plan = plan}, advices));
    if (!written.ok()) return Failed(FailedAt::kRun, written);
  }
  return {.exit_code = plan.fits() ? kExitDone : kExitDoesNotFit};
}

}  // namespace tandem
