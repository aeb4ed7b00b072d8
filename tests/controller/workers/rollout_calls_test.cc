#include "controller/workers/rollout_calls.h"

#include <chrono>

#include <catch2/catch.hpp>

#include "common/base/mutex.h"
#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

// Blocks callers until there is one per rollout; fails after half a minute.
class Meeting {
 public:
  explicit Meeting(int members) : members_(members) {}
  absl::Status Attend() {
    const MutexLock lock(came_mutex_);
    const int round = came_++ / members_;
    changed_.NotifyAll();
    const int all = (round + 1) * members_;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (came_ < all && changed_.WaitUntil(came_mutex_, deadline)) {
    }
    return came_ >= all ? absl::OkStatus()
                        : absl::InternalError("the others were not asked meanwhile");
  }

 private:
  const int members_;
  Mutex came_mutex_;
  ConditionVariable changed_;
  int came_ ABSL_GUARDED_BY(came_mutex_) = 0;
};

class MeetingRollout : public testing::FakeRolloutClient {
 public:
  MeetingRollout(testing::CallJournal& journal, int rank, int64_t incarnation, Meeting& meeting)
      : FakeRolloutClient(journal, rank, incarnation), meeting_(meeting) {}
  absl::StatusOr<PhaseReport> Wake(const std::vector<std::string>&) override {
    TANDEM_RETURN_IF_ERROR(meeting_.Attend());
    return PhaseReport{};
  }
  absl::Status AbortUpdate(const std::string&) override { return meeting_.Attend(); }
  absl::Status Shutdown() override { return left_ = meeting_.Attend(); }
  absl::Status left_ = absl::UnknownError("not asked");

 private:
  Meeting& meeting_;
};

}  // namespace

TEST_CASE("Rollouts wake, abort and end at once, not one after another", "[clients]") {
  testing::FakeRun run(3);
  Meeting meeting(3);
  std::map<int, std::shared_ptr<MeetingRollout>> rollouts;
  run.make_rollout = [&](int rank, int64_t incarnation) {
    return rollouts[rank] =
               std::make_shared<MeetingRollout>(run.journal, rank, incarnation, meeting);
  };
  REQUIRE(run.weights.EndStaleUpdates().ok());
  const auto published = run.weights.Sync(0, "");
  REQUIRE(published.ok());
  REQUIRE(published->wakes.size() == 3);
  const auto wakes = run.weights.Wake();
  REQUIRE(wakes.ok());
  REQUIRE(wakes->size() == 3);
  run.pool.ShutdownAll();
  for (const auto& [rank, rollout] : rollouts) REQUIRE(rollout->left_.ok());
}

TEST_CASE("Every rollout that fails is named, with the code that no recovery mends", "[clients]") {
  testing::FakeRun run(4);
  const auto call = [](RolloutClient&, int rank) -> absl::Status {
    if (rank == 0) return absl::UnavailableError("gone");
    if (rank == 2) return absl::DataLossError("model.x changed");
    return absl::OkStatus();
  };
  const auto answers = CallRollouts(run.pool, AllRanks(run.pool), call);
  const absl::Status status = AllAnswered(answers);
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(status.message() == "rollout 0: gone; rollout 2: model.x changed");
  REQUIRE(run.registry.Missing().size() == 1);
  REQUIRE(run.registry.Missing()[0].rfind("rollout 0 (lost", 0) == 0);
  // One that is not there has failed as well.
  const auto again = CallRollouts(run.pool, {0, 1}, call);
  REQUIRE(again[0].client == nullptr);
  REQUIRE(absl::IsUnavailable(again[0].status));
  REQUIRE(again[1].status.ok());
}

TEST_CASE("Of many rollouts that fail the first are named and the others counted", "[clients]") {
  std::vector<RolloutAnswer> answers;
  for (int rank = 0; rank < 30; ++rank) {
    answers.push_back({.rank = rank, .status = absl::UnavailableError("gone")});
  }
  const std::string message(AllAnswered(answers).message());
  REQUIRE(message.find("rollout 7: gone; and 22 more rollouts") != std::string::npos);
  REQUIRE(message.find("rollout 8") == std::string::npos);
}

TEST_CASE("A wake that failed leaves the rollouts that woke with what they hold", "[clients]") {
  testing::FakeRun run(3);
  REQUIRE(run.weights.Sync(0, "").ok());
  run.journal.FailNext("rollout 0", "Wake", absl::InternalError("no memory"));
  REQUIRE(run.weights.Wake().status().message() == "rollout 0: no memory");
  REQUIRE(run.weights.Behind(0) == std::vector<int>{0});
}

}  // namespace tandem
