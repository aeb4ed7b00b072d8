#include "controller/rollouts/rollout_rejoin.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include <catch2/catch.hpp>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;
using Lines = std::vector<std::string>;

bool AnyHas(const Lines& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return Has(line, part); });
}

// A call that ends only when it is cancelled; with a distinct error after half a minute, so that
// a test fails instead of hanging.
class Endless {
 public:
  void Hold(StatusDone done) {
    {
      const MutexLock lock(held_mutex_);
      held_.push_back(std::move(done));
      begun_ = true;
    }
    if (cancelled_) Cancel();
  }
  void Cancel() {
    cancelled_ = true;
    std::vector<StatusDone> held;
    {
      const MutexLock lock(held_mutex_);
      held.swap(held_);
    }
    for (const StatusDone& done : held) done(absl::CancelledError("cancelled"));
  }
  bool begun() const { return begun_; }

 private:
  Mutex held_mutex_;
  std::vector<StatusDone> held_ ABSL_GUARDED_BY(held_mutex_);
  std::atomic<bool> begun_ = false, cancelled_ = false;
};

class EndlessRollout : public testing::FakeRolloutClient {
 public:
  using FakeRolloutClient::FakeRolloutClient;
  void Generate(const GroupRequest&, std::function<void(Sample)>, StatusDone on_done) override {
    endless_.Hold(std::move(on_done));
  }
  void CancelAll() override { endless_.Cancel(); }

 private:
  Endless endless_;
};

// Groups of three samples.
std::vector<GroupRequest> GroupsOfThree(uint64_t count) {
  std::vector<GroupRequest> groups;
  for (uint64_t row = 0; row < count; ++row) {
    GroupRequest group{.version = 0, .prompt = {1}, .group = static_cast<int64_t>(row)};
    for (uint64_t i = 0; i < 3; ++i) group.sample_ids.push_back(MakeSampleId(row, 0, i));
    groups.push_back(group);
  }
  return groups;
}

absl::Status Ignore(const Sample&) { return absl::OkStatus(); }

// All rollouts hold version 0 and serve.
void Serve(testing::FakeRun& run) {
  run.Prepare(StartMode::kPaused);
  REQUIRE(run.weights.Sync(0, "").ok());
  REQUIRE(run.weights.Wake().ok());
  run.journal.Take();
}

}  // namespace

TEST_CASE("A rollout that stays away is waited for once, in whatever phase it was lost",
          "[returning][recovery]") {
  struct Phase {
    const char* method;
    int after;
  };
  // The third wake is that of the first step's sync.
  for (const Phase& phase :
       {Phase{"VerifyWeights", 0}, {"Generate", 0}, {"Sleep", 0}, {"Wake", 2}}) {
    INFO(phase.method);
    testing::FakeRun run(2, 5);
    run.options.probe = true;
    run.clock.OnSleep([] {});
    run.journal.FailNext("rollout 1", phase.method, absl::UnavailableError("gone"), phase.after);
    const Instant start = run.clock.Now();
    const absl::Status status = run.Run();
    INFO(status.ToString());
    REQUIRE(absl::IsDeadlineExceeded(status));
    REQUIRE(Has(std::string(status.message()),
                "after 1m these workers are still missing: "
                "rollout 1 (lost; last seen in phase"));
    REQUIRE(Has(std::string(status.message()), "the end of their logs says why"));
    REQUIRE(run.clock.Now() - start < absl::Seconds(61));
    REQUIRE(run.budget.spent() <= 1);
  }
}

TEST_CASE("Generation stops when a rollout cannot come back", "[returning][recovery]") {
  testing::FakeRun run(2);
  run.make_rollout = [&](int rank, int64_t incarnation) -> std::shared_ptr<RolloutClient> {
    if (rank == 0) return std::make_shared<EndlessRollout>(run.journal, rank, incarnation);
    return std::make_shared<testing::FakeRolloutClient>(run.journal, rank, incarnation);
  };
  Serve(run);
  run.clock.OnSleep([] {});
  run.journal.FailNext("rollout 1", "Generate", absl::UnavailableError("gone"));
  const absl::Status status = run.fleet->Generate(GroupsOfThree(2), 0, Ignore);
  INFO(status.ToString());
  REQUIRE(absl::IsDeadlineExceeded(status));
  REQUIRE(WorkerDidNotReturn(status));
}

TEST_CASE("Two rollouts lost together are synced together, and told", "[returning][recovery]") {
  testing::FakeRun run(3);
  run.fleet_options.register_timeout = absl::InfiniteDuration();
  Serve(run);
  // No successor comes before both are missed.
  run.clock.OnSleep([&run] {
    if (run.registry.Missing().size() == 2) run.RestartMissing();
  });
  run.DieAt({WorkerRole::kRollout, 1}, "Generate");
  run.DieAt({WorkerRole::kRollout, 2}, "Generate");
  const absl::Status status = run.fleet->Generate(GroupsOfThree(6), 0, Ignore);
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE(run.journal.Count("trainer 0 SyncWeights") == 1);
  REQUIRE(run.journal.Count("trainer 1 SyncWeights(v0, targets 1+2, r1i2)") == 1);
  REQUIRE(run.journal.Count("trainer 2 SyncWeights(v0, targets 1+2, r2i2)") == 1);
  REQUIRE(run.budget.spent() == 1);
  for (const char* rank : {"1", "2"}) {
    REQUIRE(AnyHas(run.progress.messages,
                   std::string("rollout ") + rank + " holds weight version 0 again"));
  }
  REQUIRE(run.weights.Complete(0));
  REQUIRE(run.weights.TakeResendCount() == 2);
  REQUIRE(run.weights.TakeResendCount() == 0);
}

TEST_CASE("A version that is sent again shows in the step's metrics", "[returning][recovery]") {
  testing::FakeRun run(2);
  run.DieAt({WorkerRole::kRollout, 1}, "Generate");
  REQUIRE(run.Run().ok());
  REQUIRE(run.store.steps.at(1).metrics.at("weights/resent_rollouts") == 1);
  REQUIRE_FALSE(run.store.steps.at(2).metrics.contains("weights/resent_rollouts"));
}

TEST_CASE("Nobody waits for the sync of a rollout that is not wanted any more",
          "[returning][interrupt]") {
  testing::FakeRun run(2);
  Endless sync;
  std::atomic<bool> endless = false;
  run.on_sync = [&](StatusDone done) {
    endless ? sync.Hold(std::move(done)) : done(absl::OkStatus());
  };
  run.on_cancel = [&] { sync.Cancel(); };
  Serve(run);
  endless = true;
  const auto client = *run.pool.rollout(1);
  run.DieAt({WorkerRole::kRollout, 1}, "Abort");
  {
    RolloutRejoin rejoin(run.pool, run.weights, run.budget, run.progress, {.version = 0});
    rejoin.ReportLost({.rank = 1, .client = client}, absl::UnavailableError("gone"));
    while (!sync.begun()) REQUIRE(rejoin.TakeRejoined().ok());
  }
  REQUIRE(run.journal.Count("rollout 1 AbortUpdate()") == 1);
  REQUIRE(run.journal.Count("rollout 0 AbortUpdate()") == 0);
  endless = false;
  REQUIRE(run.weights.Sync(0, "").ok());
  REQUIRE(run.weights.Wake().ok());
  REQUIRE(run.weights.Complete(0));
}

TEST_CASE("Ctrl-C in a step's sync aborts the sync and keeps the step",
          "[returning][train_loop][interrupt]") {
  testing::FakeRun run(2);
  Endless sync;
  std::atomic<int> syncs = 0;
  // Two trainers, at the start and after the step.
  run.on_sync = [&](StatusDone done) {
    if (++syncs <= 2) return done(absl::OkStatus());
    run.control->StopNow();
    sync.Hold(std::move(done));
  };
  run.on_cancel = [&] { sync.Cancel(); };
  run.options.total_steps = 5;
  const absl::Status status = run.Run();
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE(run.store.steps.size() == 1);
  REQUIRE(run.journal.Count("trainer 1 SaveState(v1)") == 1);
  REQUIRE(run.journal.Count("rollout 1 AbortUpdate()") == 2);  // once at the start
  REQUIRE(AnyHas(run.progress.messages, "the sync of weight version 1 was aborted"));
}

}  // namespace tandem
