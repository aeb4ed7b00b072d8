#include "controller/rollouts/rollout_fleet.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include <catch2/catch.hpp>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

GroupRequest Group() {
  return {.version = 0,
          .prompt = {1},
          .sample_ids = {MakeSampleId(0, kUserEpoch, 0), MakeSampleId(0, kUserEpoch, 1),
                         MakeSampleId(0, kUserEpoch, 2)}};
}

// `deaths` times a rollout dies over what it is asked for.
absl::Status GenerateWith(testing::FakeRun& run, int deaths, BudgetOwner owner) {
  run.Prepare(StartMode::kPaused);
  REQUIRE(run.weights.Sync(0, "").ok());
  REQUIRE(run.weights.Wake().ok());
  if (deaths > 0) {
    run.journal.FailNext("rollout 0", "Generate", absl::UnavailableError("gone"), 0, deaths);
  }
  return run.fleet->Generate({Group()}, 0, [](Sample) { return absl::OkStatus(); },
                             {.budget_owner = owner});
}

// Opens once; waiting for it has a deadline, so that a test fails instead of hanging.
class Gate {
 public:
  void Open() {
    const MutexLock lock(open_mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  bool Wait() {
    const MutexLock lock(open_mutex_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!open_ && changed_.WaitUntil(open_mutex_, deadline)) {
    }
    return open_;
  }

 private:
  Mutex open_mutex_;
  ConditionVariable changed_;
  bool open_ ABSL_GUARDED_BY(open_mutex_) = false;
};

// Answers from another thread, when `gate` is open.
class GatedRollout : public testing::FakeRolloutClient {
 public:
  GatedRollout(testing::CallJournal& journal, int rank, int64_t incarnation, Gate& gate)
      : FakeRolloutClient(journal, rank, incarnation), gate_(gate) {}
  void Generate(const GroupRequest& request,
                std::function<void(Sample)> on_sample,
                std::function<void(absl::Status)> on_done) override {
    threads_.emplace_back([=, this] {
      if (!gate_.Wait()) return on_done(Internal("nobody came back while this one generated"));
      FakeRolloutClient::Generate(request, on_sample, on_done);
    });
  }

 private:
  Gate& gate_;
  std::vector<std::jthread> threads_;
};

// Opens the gate with its first prompt.
class Successor : public testing::FakeRolloutClient {
 public:
  Successor(testing::CallJournal& journal, int rank, int64_t incarnation, Gate& gate)
      : FakeRolloutClient(journal, rank, incarnation), gate_(gate) {}
  void Generate(const GroupRequest& request,
                std::function<void(Sample)> on_sample,
                std::function<void(absl::Status)> on_done) override {
    gate_.Open();
    FakeRolloutClient::Generate(request, on_sample, on_done);
  }

 private:
  Gate& gate_;
};

}  // namespace

TEST_CASE("F3: a rollout that restarts is synced and given prompts while the others generate",
          "[serving][recovery]") {
  testing::FakeRun run(2);
  Gate gate;
  run.fleet_options.max_in_flight_samples = 3;
  run.make_rollout = [&](int rank, int64_t incarnation) -> std::shared_ptr<RolloutClient> {
    if (rank == 0) return std::make_shared<GatedRollout>(run.journal, rank, incarnation, gate);
    if (incarnation == 1) {
      return std::make_shared<testing::FakeRolloutClient>(run.journal, rank, incarnation);
    }
    return std::make_shared<Successor>(run.journal, rank, incarnation, gate);
  };
  run.Prepare(StartMode::kPaused);
  REQUIRE(run.weights.Sync(0, "").ok());
  REQUIRE(run.weights.Wake().ok());
  run.journal.Take();
  run.DieAt({WorkerRole::kRollout, 1}, "Generate");
  std::vector<GroupRequest> groups;
  for (uint64_t row = 0; row < 4; ++row) {
    GroupRequest group = Group();
    group.group = static_cast<int64_t>(row);
    for (uint64_t& id : group.sample_ids) id += MakeSampleId(row, 0, 0);
    groups.push_back(group);
  }
  std::set<uint64_t> seen;
  const absl::Status status = run.fleet->Generate(groups, 0, [&](const Sample& sample) {
    REQUIRE(seen.insert(sample.sample_id).second);
    return absl::OkStatus();
  });
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE(seen.size() == 12);
  // Its pair alone published, to it alone; the others were asked for nothing but samples.
  const std::vector<std::string> lines = run.journal.Take();
  const auto at = [&](const std::string& line) {
    const auto found = std::find(lines.begin(), lines.end(), line);
    INFO(line);
    REQUIRE(found != lines.end());
    return found;
  };
  const auto synced = at("trainer 1 SyncWeights(v0, targets 1, r1i2)");
  at("trainer 0 SyncWeights(v0, targets 1, )");
  const auto woken = at("rollout 1 Wake(kv_cache)");
  REQUIRE(synced < woken);
  for (auto line = lines.begin(); line != woken; ++line) {
    REQUIRE(line->rfind("rollout 0 Wake", 0) != 0);
  }
  // No prompt before it held the version: its first life got one, its second only after the wake.
  REQUIRE(std::count_if(lines.begin(), woken, [](const std::string& line) {
            return line.rfind("rollout 1 Generate", 0) == 0;
          }) == 1);
  REQUIRE(std::count_if(woken, lines.end(), [](const std::string& line) {
            return line.rfind("rollout 1 Generate", 0) == 0;
          }) >= 1);
  REQUIRE(run.budget.spent() == 1);
}

TEST_CASE("F3: two rollouts lost one after the other both come back", "[serving][recovery]") {
  testing::FakeRun run(3);
  run.Prepare(StartMode::kPaused);
  REQUIRE(run.weights.Sync(0, "").ok());
  REQUIRE(run.weights.Wake().ok());
  run.DieAt({WorkerRole::kRollout, 1}, "Generate");
  // The second dies as the first comes back.
  run.DieAt({WorkerRole::kRollout, 2}, "Wake");
  run.journal.FailNext("rollout 2", "Generate", absl::UnavailableError("gone"));
  std::vector<GroupRequest> groups;
  for (uint64_t row = 0; row < 6; ++row) {
    GroupRequest group = Group();
    for (uint64_t& id : group.sample_ids) id += MakeSampleId(row, 0, 0);
    groups.push_back(group);
  }
  int samples = 0;
  const absl::Status status = run.fleet->Generate(groups, 0, [&](const Sample&) {
    ++samples;
    return absl::OkStatus();
  });
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE(samples == 18);
  REQUIRE(run.weights.Complete(0));
}

TEST_CASE("A call on all rollouts is made at once", "[serving]") {
  testing::FakeRun run(3);
  run.Prepare(StartMode::kPaused);
  REQUIRE(run.weights.Sync(0, "").ok());
  REQUIRE(run.weights.Wake().ok());
  std::vector<StatusDone> inside;
  const auto call = [&](RolloutClient& rollout, int rank, StatusDone done) {
    if (rollout.address() != fmt::format("r{}i1", rank)) return done(Internal("another's client"));
    inside.push_back(std::move(done));
    if (inside.size() < 3) return;  // each waits for all the others
    for (const StatusDone& end : inside) end(absl::OkStatus());
  };
  const absl::Status status = run.fleet->CallAll(0, call);
  INFO(status.ToString());
  REQUIRE(status.ok());
}

TEST_CASE("A group that rollouts die of twice fails, and all serve again", "[serving]") {
  testing::FakeRun run(1);
  const absl::Status status = GenerateWith(run, 100, BudgetOwner::kRun);
  REQUIRE(absl::IsInternal(status));
  REQUIRE(std::string(status.message()).find("was abandoned") != std::string::npos);
  REQUIRE(run.journal.Count("rollout 0 Generate") == 2);
  REQUIRE(run.weights.Complete(0));
  REQUIRE(run.budget.spent() == 2);
}

TEST_CASE("A rollout that is lost once costs a user's call nothing, nor the run", "[serving]") {
  testing::FakeRun run(1);
  REQUIRE(GenerateWith(run, 1, BudgetOwner::kUserCall).ok());
  REQUIRE(run.budget.spent() == 0);
}

TEST_CASE("A user's call that rollouts die of leaves the run its restarts", "[serving]") {
  testing::FakeRun run(1);
  for (int call = 0; call < 5; ++call) {
    REQUIRE(absl::IsInternal(GenerateWith(run, 2, BudgetOwner::kUserCall)));
  }
  REQUIRE(run.budget.spent() == 0);
  REQUIRE(GenerateWith(run, 0, BudgetOwner::kRun).ok());
}

}  // namespace tandem
