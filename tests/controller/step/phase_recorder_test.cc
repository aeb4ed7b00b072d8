#include "controller/step/phase_recorder.h"

#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

using namespace tandem::testing;

const WorkerKey kTrainer{WorkerRole::kTrainer, 0}, kRecordedRollout{WorkerRole::kRollout, 0};

PhaseReport ReportOfTag(const char* tag, int64_t now, int64_t peak) {
  return {.ledger = {.entries = {{tag, Location::kDevice, now, peak}},
                     .memory_bytes = now,
                     .memory_peak_bytes = peak}};
}

const LedgerSnapshot& LedgerOf(const PhaseTime& phase, bool trainer) {
  for (const WorkerMemory& worker : phase.workers) {
    if (worker.trainer == trainer && worker.rank == 0) return worker.ledger;
  }
  FAIL("no such worker");
  return phase.workers[0].ledger;
}

}  // namespace

TEST_CASE("A phase's peak is what its workers reported, and what the others hold at rest",
          "[phases]") {
  FakeRun run(1);
  PhaseRecorder recorder(1, run.pool, run.progress, run.clock);
  recorder.Begin("sleep");
  recorder.Report(kRecordedRollout, ReportOfTag("kv_cache", 10, 100));
  recorder.Begin("train");
  recorder.Report(kTrainer, ReportOfTag("gradients", 30, 70));
  recorder.End();
  REQUIRE(recorder.phases().size() == 2);
  REQUIRE(recorder.phases()[0].peak_bytes == 100);
  // The rollout counts with what it held when it fell asleep, not with the peak before.
  REQUIRE(recorder.phases()[1].peak_bytes == 70 + 10);
  REQUIRE(LedgerOf(recorder.phases()[1], false).entries[0].peak_bytes == 10);
  REQUIRE(LedgerOf(recorder.phases()[1], true).entries[0].peak_bytes == 70);
}

TEST_CASE("A phase that comes again keeps its highest peaks", "[phases]") {
  FakeRun run(1);
  PhaseRecorder recorder(1, run.pool, run.progress, run.clock);
  for (const int64_t peak : {50, 90, 60}) {
    recorder.Begin("train");
    recorder.Report(kTrainer, ReportOfTag("gradients", 5, peak));
    recorder.Begin("optimize");
    recorder.Report(kTrainer, ReportOfTag("optimizer", 8, peak + 1));
  }
  recorder.End();
  REQUIRE(recorder.phases().size() == 2);
  REQUIRE(recorder.phases()[0].peak_bytes == 90);
  REQUIRE(LedgerOf(recorder.phases()[0], true).entries[0].peak_bytes == 90);
  REQUIRE(LedgerOf(recorder.phases()[0], true).memory_bytes == 5);
  REQUIRE(recorder.phases()[1].peak_bytes == 91);
}

TEST_CASE("What is reported late belongs to the phase that has ended", "[phases]") {
  FakeRun run(1);
  PhaseRecorder recorder(1, run.pool, run.progress, run.clock);
  recorder.Begin("generate");
  recorder.Begin("sleep");
  recorder.ReportOf("generate", kRecordedRollout, ReportOfTag("kv_cache", 80, 120));
  recorder.ReportOf("no such phase", kRecordedRollout, ReportOfTag("kv_cache", 0, 999));
  recorder.End();
  REQUIRE(recorder.phases()[0].phase == "generate");
  REQUIRE(recorder.phases()[0].peak_bytes == 120);
  REQUIRE(recorder.phases()[1].peak_bytes == 0);
}

TEST_CASE("The seconds of a phase do not follow the machine's date", "[phases]") {
  for (const absl::Duration change : {absl::Hours(1), -absl::Hours(1)}) {
    FakeRun run(1);
    PhaseRecorder recorder(1, run.pool, run.progress, run.clock);
    recorder.Begin("train");
    run.clock.Advance(absl::Seconds(3));
    run.clock.SetDate(change);
    recorder.End();
    REQUIRE(recorder.Seconds("train") == 3);
    REQUIRE(recorder.TotalSeconds() == 3);
  }
}

}  // namespace tandem
