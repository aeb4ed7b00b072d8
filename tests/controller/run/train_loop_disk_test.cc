// A run whose disk refuses what it writes.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/disk_refusal.h"
#include "controller/store/disk/waiting_run_store.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

absl::Status NoSpace() {
  return WithDiskRefused(absl::ResourceExhaustedError("No space left on device"));
}

// Store and tracker take each write at the third attempt only.
struct RefusedRun {
  RefusedRun() {
    run.used_store = &store;
    run.validation = {{.data_row = 0, .tokens = {5}, .data_source = "fake"}};
    for (auto* on_write : {&records->on_write, &run.tracker.on_write}) {
      *on_write = [attempts = 0]() mutable {
        return ++attempts % 3 == 0 ? absl::OkStatus() : NoSpace();
      };
    }
  }
  testing::FakeRun run{1};
  testing::MemoryRunStore* records = new testing::MemoryRunStore;  // the store's
  WaitingRunStore store{std::unique_ptr<RunStore>(records), "/run", run.disk};
};

}  // namespace

TEST_CASE("a run whose every row is refused twice loses none, also where a recovery undoes some",
          "[train_loop]") {
  RefusedRun refused;
  testing::FakeRun& run = refused.run;
  run.options.save_freq = 1;
  run.DieAt({WorkerRole::kTrainer, 0}, "ForwardBackward", 1);
  const absl::Status status = run.Run();
  INFO(status);
  REQUIRE(status.ok());
  REQUIRE(run.loop->complete());
  REQUIRE(run.tracker.steps == std::vector<int64_t>{1, 2, 2});  // the evaluation, too
  REQUIRE(refused.records->steps.size() == 2);
  REQUIRE(refused.records->samples.at(1).size() == 8);
  REQUIRE(refused.records->samples.at(2).size() == 8);
  REQUIRE(refused.records->evaluations.size() == 1);
  REQUIRE(run.journal.Count("trainer 0 OptimizerStep") == 2);
  REQUIRE(run.journal.Count("trainer 0 SaveState") == 2);
  REQUIRE(run.disk.waits_for().empty());
  REQUIRE(run.disk.waited() > absl::ZeroDuration());
}

TEST_CASE("a run that has ended reports without waiting for its disk", "[train_loop]") {
  RefusedRun refused;
  testing::FakeRun& run = refused.run;
  REQUIRE(run.Run().ok());
  run.control->OnEnded(absl::InternalError("an optimizer step failed"));
  refused.records->on_write = NoSpace;
  const Instant end = run.clock.Now();
  REQUIRE(IsDiskRefused(refused.store.RecordRun({})));
  REQUIRE(run.clock.Now() == end);
}

TEST_CASE("a recovery goes on where the steps that it undid cannot be read", "[train_loop]") {
  class UnreadableStore final : public testing::MemoryRunStore {
   public:
    absl::StatusOr<std::vector<StepRecord>> ListSteps(const StepQuery& query) override {
      if (query.undone) return absl::DataLossError("a page of run.db is damaged");
      return MemoryRunStore::ListSteps(query);
    }
  };
  UnreadableStore store;
  testing::FakeRun run(1);
  run.used_store = &store;
  run.options.save_freq = 1;
  run.DieAt({WorkerRole::kTrainer, 0}, "ForwardBackward", 1);
  const absl::Status status = run.Run();
  INFO(status);
  REQUIRE(status.ok());
  REQUIRE(run.loop->complete());
  REQUIRE(store.steps.size() == 2);
}

TEST_CASE("metrics that cannot be undone for another reason than a disk do not end the run",
          "[train_loop]") {
  testing::FakeRun run(1);
  run.tracker.on_write = [refused = false]() mutable {
    return std::exchange(refused, true) ? absl::OkStatus() : absl::PermissionDeniedError("closed");
  };
  REQUIRE(run.Run().ok());
  const auto& said = run.progress.messages;
  REQUIRE(std::count_if(said.begin(), said.end(), [](const std::string& text) {
            return testing::Has(text, "from the metrics files: closed");
          }) == 1);
}

}  // namespace tandem
