#include "controller/cli/memory_command.h"

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/status_macros.h"
#include "common/formats/atomic_file.h"
#include "common/net/ledger_codec.h"
#include "controller/plan/memory_plan_json.h"
#include "controller/report/memory_html.h"
#include "controller/store/ledger_json.h"
#include "controller/store/sqlite_run_store.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {
namespace {

// Without phases where the text is no plan: an older build wrote the run.
MemoryPlan PlanOf(const std::string& json) {
  auto plan = MemoryPlanFromJson(json);
  return plan.ok() ? *std::move(plan) : MemoryPlan{};
}

PhaseTime PhaseOf(const v1::PhaseTime& proto) {
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
    if (planned != nullptr) entry["planned_bytes"] = memory.plan.LedgerBytes(*planned);
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

StepMemory MemoryOf(const v1::GetStatusResponse& status, const v1::ListStepsResponse& steps) {
  StepMemory memory{.plan = PlanOf(status.memory_plan())};
  if (steps.steps_size() > 0) {
    const v1::StepRecord& step = steps.steps(steps.steps_size() - 1);
    memory.step = step.step();
    memory.state = fmt::format("{}, step {}", status.run_id(), step.step());
    memory.note = NoteOnStep(memory.step);
    for (const v1::PhaseTime& phase : step.phases()) memory.phases.push_back(PhaseOf(phase));
    return memory;
  }
  memory.state = fmt::format("{}, no step is finished: now", status.run_id());
  memory.note =
      "these are the ledgers of this moment, peaks since each worker's last phase began: seconds "
      "and phases come with the first finished step, the optimizer's state at its end";
  PhaseTime now{.phase = status.phase().empty() ? "now" : status.phase()};
  for (const v1::WorkerStatus& worker : status.workers()) {
    now.workers.push_back({worker.worker().role() == v1::ROLE_TRAINER, worker.worker().rank(),
                           FromProto(worker.ledger())});
  }
  memory.phases.push_back(std::move(now));
  return memory;
}

absl::StatusOr<StepMemory> MemoryOfRun(const std::string& run_dir, int64_t step) {
  const std::string path = run_dir + "/run.db";
  if (!std::filesystem::exists(path)) {
    return MakeStatus(absl::StatusCode::kNotFound, "there is no run in {}: {} does not exist",
                      run_dir, path);
  }
  TANDEM_ASSIGN_OR_RETURN(const auto store, SqliteRunStore::Open(path));
  TANDEM_ASSIGN_OR_RETURN(const RunInfo info, store->NewestRun());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<StepRecord> steps, store->ListSteps(step, step));
  if (steps.empty()) {
    return MakeStatus(absl::StatusCode::kNotFound, "the run in {} has not finished {}", run_dir,
                      step == 0 ? "a step" : fmt::format("step {}", step));
  }
  return StepMemory{.step = steps.back().step,
                    .state = fmt::format("{}, step {}", info.run_id, steps.back().step),
                    .plan = PlanOf(info.memory_plan),
                    .phases = steps.back().phases,
                    .note = NoteOnStep(steps.back().step)};
}

absl::Status PrintMemory(const StepMemory& memory,
                         const MemoryOptions& options,
                         std::ostream& out) {
  out << (options.json ? ToJson(memory) : StepMemoryText(memory));
  if (options.html.empty()) return absl::OkStatus();
  return WriteFileAtomically(options.html, MemoryHtml(memory.state, memory));
}

}  // namespace tandem
