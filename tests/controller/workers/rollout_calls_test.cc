#include "controller/workers/rollout_calls.h"

#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/mutex.h"
#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

// Answers the members of a round when all have come: a caller that waited for one of them before it
// asked the next would wait for ever.
class Meeting {
 public:
  explicit Meeting(size_t members) : members_(members) {}
  void Attend(StatusDone done) {
    waiting_.push_back(std::move(done));
    if (waiting_.size() < members_) return;
    for (const StatusDone& member : std::exchange(waiting_, {})) member(absl::OkStatus());
  }

 private:
  const size_t members_;
  std::vector<StatusDone> waiting_;
};

class MeetingRollout : public testing::FakeRolloutClient {
 public:
  MeetingRollout(testing::CallJournal& journal, int rank, int64_t incarnation, Meeting& meeting)
      : FakeRolloutClient(journal, rank, incarnation), meeting_(meeting) {}
  void Wake(const std::vector<std::string>&, Done<PhaseReport> done) override {
    meeting_.Attend([done](const absl::Status&) { done(PhaseReport{}); });
  }
  void AbortUpdate(const std::string&, StatusDone done) override {
    meeting_.Attend(std::move(done));
  }
  void PrefilledTokens(Done<int64_t> done) override {
    meeting_.Attend([done](const absl::Status&) { done(7); });
  }
  void Shutdown(StatusDone done) override {
    meeting_.Attend([this, done](const absl::Status& status) {
      left_ = status;
      done(status);
    });
  }
  absl::Status left_ = absl::UnknownError("not asked");

 private:
  Meeting& meeting_;
};

}  // namespace

TEST_CASE("Rollouts wake, count, abort and end at once, not one after another", "[clients]") {
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
  REQUIRE(PrefillTokenCounter(run.pool).Tokens() == 0);
  ShutDownWorkers(run.pool);
  for (const auto& [rank, rollout] : rollouts) REQUIRE(rollout->left_.ok());
}

TEST_CASE("Every rollout that fails is named, with the code that no recovery mends", "[clients]") {
  testing::FakeRun run(4);
  const auto call = [](RolloutClient&, int rank, const StatusDone& done) {
    if (rank == 0) return done(absl::UnavailableError("gone"));
    if (rank == 2) return done(absl::DataLossError("model.x changed"));
    done(absl::OkStatus());
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
