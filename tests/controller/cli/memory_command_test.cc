#include "controller/cli/memory_command.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/net/worker_codec.h"
#include "controller/cli/reading_commands.h"
#include "controller/plan/memory_plan.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "controller/view/run_dir_view.h"
#include "tandem/v1/controller.pb.h"
#include "tests/support/temp_dir.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

constexpr int64_t kMib = 1 << 20;

LedgerSnapshot LedgerOfTag(const char* tag, int64_t bytes) {
  return {.entries = {{tag, Location::kDevice, bytes, bytes}},
          .device_bytes = bytes,
          .device_peak_bytes = bytes,
          .memory_bytes = bytes,
          .memory_peak_bytes = bytes,
          .process_bytes = bytes + 9 * kMib,
          .baseline_bytes = 5 * kMib,
          .resident_bytes = bytes};
}

MemoryPlan CommandPlan() {
  MemoryPlan plan{.device_bytes = 1000 * kMib};
  plan.phases = {{"train", {{true, "master", Location::kDevice, 110 * kMib}}}};
  return plan;
}

PhaseTime Phase() {
  return {"train",
          1.5,
          150 * kMib,
          {{true, 0, LedgerOfTag("master", 100 * kMib)},
           {false, 0, LedgerOfTag("kv_cache", 50 * kMib)}}};
}

void RequireShown(const std::string& text) {
  INFO(text);
  for (const char* part : {"train", "1.50 s", "100 MiB", "50 MiB", "150 MiB", "15.0 %", "110 MiB",
                           "168 MiB", "8 MiB", "m master", "K kv_cache"}) {
    INFO(part);
    REQUIRE(text.find(part) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("Memory of a running controller is its step beside its plan", "[ctl][memory]") {
  v1::GetStatusResponse status;
  status.set_run_id("p/e/1");
  status.set_memory_plan(MemoryPlanToJson(CommandPlan()));
  v1::ListStepsResponse steps;
  v1::StepRecord* step = steps.add_steps();
  step->set_step(7);
  v1::PhaseTime* phase = step->add_phases();
  phase->set_phase("train");
  phase->set_seconds(1.5);
  for (const WorkerMemory& worker : Phase().workers) {
    v1::WorkerMemory* memory = phase->add_workers();
    memory->set_role(worker.trainer ? v1::ROLE_TRAINER : v1::ROLE_ROLLOUT);
    *memory->mutable_ledger() = ToProto(worker.ledger);
  }
  std::ostringstream out;
  REQUIRE(PrintMemory(MakeStepMemory(status, steps), {}, out).ok());
  REQUIRE(out.str().find("p/e/1, step 7") != std::string::npos);
  RequireShown(out.str());
}

TEST_CASE("Before the first step the ledgers of now are shown", "[ctl][memory]") {
  v1::GetStatusResponse status;
  status.set_phase("generate");
  v1::WorkerStatus* worker = status.add_workers();
  worker->mutable_worker()->set_role(v1::ROLE_ROLLOUT);
  *worker->mutable_ledger() = ToProto(LedgerOfTag("kv_cache", 50 * kMib));
  const StepMemory memory = MakeStepMemory(status, {});
  REQUIRE(memory.phases.size() == 1);
  REQUIRE(memory.phases[0].phase == "generate");
  REQUIRE(PairOf(memory.phases[0], {}).peak_bytes() == 50 * kMib);
  std::ostringstream out;
  REQUIRE(PrintMemory(memory, {}, out).ok());
  REQUIRE(out.str().find("no step is finished") != std::string::npos);
  REQUIRE(out.str().find("appear with the first finished step") != std::string::npos);
}

TEST_CASE("Memory of a directory whose run.db is none is refused with what to do",
          "[ctl][memory]") {
  const testing::TempDir dir;
  std::ofstream(dir.path() / "run.db") << std::string(4096, 'x');
  const absl::Status status = RunDirView::Open(dir.path().string()).status();
  REQUIRE(status.code() == absl::StatusCode::kDataLoss);
  REQUIRE(std::string(status.message()).find("bring back a copy of it") != std::string::npos);
}

TEST_CASE("Memory of a run that has ended comes from its store", "[ctl][memory]") {
  const testing::TempDir dir;
  REQUIRE(RunDirView::Open(dir.path()).status().code() == absl::StatusCode::kNotFound);
  {
    const auto store = SqliteRunStore::Open((dir.path() / "run.db").string()).value();
    REQUIRE(store->RecordRun({.run_id = "r", .memory_plan = MemoryPlanToJson(CommandPlan())}).ok());
  }
  const auto memory = [&](const MemoryOptions& options, bool json, std::string* text) {
    const auto view = RunDirView::Open(dir.path()).value();
    std::ostringstream out;
    const absl::Status status = ReadingCommands(*view, json, out).Memory(options);
    *text = out.str();
    return status;
  };
  std::string text;
  REQUIRE(memory({}, false, &text).message() ==
          "the run in " + dir.path().string() + " has not finished a step");
  {
    const auto store = SqliteRunStore::Open((dir.path() / "run.db").string()).value();
    REQUIRE(store->RecordStep({.step = 1, .phases = {Phase()}}).ok());
    REQUIRE(store->RecordStep({.step = 2, .phases = {Phase()}}).ok());
  }
  REQUIRE(memory({.step = 3}, false, &text).code() == absl::StatusCode::kNotFound);
  REQUIRE(memory({.step = 1}, false, &text).ok());
  REQUIRE(text.find(NoteOnStep(1)) != std::string::npos);
  REQUIRE(memory({.html = (dir.path() / "m.html").string()}, false, &text).ok());
  REQUIRE(text.find("r, step 2") != std::string::npos);
  RequireShown(text);
  REQUIRE(std::filesystem::file_size(dir.path() / "m.html") > 1000);
  REQUIRE(memory({}, true, &text).ok());
  const nlohmann::json json = nlohmann::json::parse(text);
  REQUIRE(json.at("step").get<int>() == 2);
  REQUIRE(json.at("phases").at(0).at("planned_bytes").get<int64_t>() == 110 * kMib);
  REQUIRE(json.at("phases").at(0).at("workers").size() == 2);
}
