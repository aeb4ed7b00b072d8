#include "controller/store/disk/waiting_run_store.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/disk_refusal.h"
#include "tests/fakes/fake_clock.h"

namespace tandem {
namespace {

// Refuses the next `refusals` writes as a full disk, then notes each.
class RefusingRunStore final : public RunStore {
 public:
  absl::Status RecordRun(const RunInfo& info) override { return Write("run " + info.run_id); }
  absl::Status RecordStep(const StepRecord& step) override {
    return Write("step " + std::to_string(step.step));
  }
  absl::Status RecordSamples(int64_t step, const std::vector<SampleRecord>& samples) override {
    return Write("samples " + std::to_string(step) + " " + std::to_string(samples.size()));
  }
  absl::Status RecordEvaluation(const EvaluationRecord& evaluation) override {
    return Write("evaluation " + std::to_string(evaluation.step));
  }
  absl::Status RecordEvents(const std::vector<EventRecord>& events) override {
    return Write("events " + std::to_string(events.size()));
  }
  absl::Status UndoAfter(int64_t step, int64_t generation) override {
    return Write("undo " + std::to_string(step) + " " + std::to_string(generation));
  }
  absl::StatusOr<std::vector<StepRecord>> ListSteps(const StepQuery& query) override {
    return std::vector<StepRecord>{{.step = query.first_step}};
  }
  absl::StatusOr<SampleRecordPage> ListSamples(const SampleQuery& query) override {
    return SampleRecordPage{.total = query.step};
  }
  absl::StatusOr<std::vector<EvaluationRecord>> ListEvaluations(
      const EvaluationQuery& query) override {
    return std::vector<EvaluationRecord>{{.step = query.first_step}};
  }
  absl::StatusOr<std::vector<EventRecord>> ListEvents(int64_t limit) override {
    return std::vector<EventRecord>{{.seq = limit}};
  }

  absl::Status refusal = WithDiskRefused(absl::ResourceExhaustedError("run.db: no space"));
  int refusals = 0;
  int attempts = 0;
  std::vector<std::string> written;

 private:
  absl::Status Write(const std::string& what) {
    ++attempts;
    if (refusals > 0) {
      --refusals;
      return refusal;
    }
    written.push_back(what);
    return absl::OkStatus();
  }
};

struct WaitingStoreFixture {
  testing::FakeClock clock;
  bool ended = false;
  DiskWait wait{clock, {.retry_every = absl::Seconds(10), .ended = [this] { return ended; }}};
  RefusingRunStore* inner = new RefusingRunStore;  // the store's
  WaitingRunStore store{std::unique_ptr<RunStore>(inner), "/run", wait};
};

struct StoreWrite {
  std::string what;
  std::function<absl::Status(RunStore&)> write;
};

const std::vector<StoreWrite>& StoreWrites() {
  static const std::vector<StoreWrite> writes = {
      {"run r", [](RunStore& store) { return store.RecordRun({.run_id = "r"}); }},
      {"step 3", [](RunStore& store) { return store.RecordStep({.step = 3}); }},
      {"samples 3 2",
       [](RunStore& store) {
         return store.RecordSamples(3, {{}, {}});
       }},
      {"evaluation 4", [](RunStore& store) { return store.RecordEvaluation({.step = 4}); }},
      {"undo 2 7", [](RunStore& store) { return store.UndoAfter(2, 7); }},
  };
  return writes;
}

}  // namespace

TEST_CASE("each write of a waiting store is repeated until its disk takes it, and once written",
          "[waiting_run_store]") {
  for (const StoreWrite& write : StoreWrites()) {
    INFO(write.what);
    WaitingStoreFixture f;
    f.inner->refusals = 3;
    REQUIRE(write.write(f.store).ok());
    REQUIRE(f.inner->attempts == 4);
    REQUIRE(f.inner->written == std::vector<std::string>{write.what});
    REQUIRE(f.wait.waited() == absl::Seconds(30));
  }
}

TEST_CASE(
    "each write of a waiting store fails at once for another reason than a disk, and at a stop",
    "[waiting_run_store]") {
  for (const StoreWrite& write : StoreWrites()) {
    INFO(write.what);
    WaitingStoreFixture f;
    f.inner->refusals = 1;
    f.inner->refusal = absl::InternalError("locked");
    REQUIRE(write.write(f.store) == f.inner->refusal);
    f.inner->refusals = 1;
    f.inner->refusal = WithDiskRefused(absl::DataLossError("Input/output error"));
    f.ended = true;
    REQUIRE(IsDiskRefused(write.write(f.store)));
    REQUIRE(f.inner->attempts == 2);
    REQUIRE(f.inner->written.empty());
    REQUIRE(f.wait.waited() == absl::ZeroDuration());
  }
}

TEST_CASE("a waiting store passes queries on", "[waiting_run_store]") {
  WaitingStoreFixture f;
  REQUIRE(f.store.ListSteps({.first_step = 5})->at(0).step == 5);
  REQUIRE(f.store.ListSamples({.step = 6})->total == 6);
  REQUIRE(f.store.ListEvaluations({.first_step = 7})->at(0).step == 7);
}

}  // namespace tandem
