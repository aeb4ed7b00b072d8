#include "controller/workers/trainer_calls.h"

#include <thread>
#include <utility>
#include <vector>

#include <absl/synchronization/notification.h>
#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

absl::Status Noticed() {
  return WithOrigin(absl::AbortedError("trainer 1 failed; its own message says why"),
                    FailureOrigin::kAnotherRank);
}

// Every rank's answer, that of rank `first` before the others.
absl::Status Collect(testing::FakeRun& run, const std::vector<absl::Status>& answers, int first) {
  std::vector<Done<int>> calls;
  const auto answer = [&](size_t rank) {
    const absl::Status& status = answers[rank];
    calls[rank](status.ok() ? absl::StatusOr<int>(static_cast<int>(rank)) : status);
  };
  const auto call = [&](TrainerClient&, int, Done<int> done) {
    calls.push_back(std::move(done));
    if (calls.size() < answers.size()) return;  // all are under way at once
    answer(static_cast<size_t>(first));
    for (size_t rank = 0; rank < answers.size(); ++rank) {
      if (rank != static_cast<size_t>(first)) answer(rank);
    }
  };
  const RolloutOfTrainer rollouts = run.placement.Routes().Rounds(AllRanks(run.pool)).front();
  return CallAllTrainers<int>(run.pool, call, {.rollouts = rollouts}).status();
}

}  // namespace

TEST_CASE("The rank that failed is reported, whichever rank answers first", "[clients]") {
  const std::vector<absl::Status> answers = {
      Noticed(), absl::ResourceExhaustedError("no space left in /checkpoints")};
  for (const int first : {0, 1}) {
    testing::FakeRun run(2);
    const absl::Status status = Collect(run, answers, first);
    INFO(first << ": " << std::string(status.message()));
    REQUIRE(absl::IsResourceExhausted(status));
    REQUIRE(status.message() == "trainer 1: no space left in /checkpoints");
    REQUIRE_FALSE(IsPeerFailure(status));
    REQUIRE(run.registry.Missing().empty());
  }
}

TEST_CASE("A rank that only noticed is reported where nobody says more", "[clients]") {
  testing::FakeRun run(2);
  const absl::Status status = Collect(run, {Noticed(), absl::OkStatus()}, 0);
  REQUIRE(absl::IsAborted(status));
  REQUIRE(status.message() == "trainer 0: trainer 1 failed; its own message says why");
}

TEST_CASE("A lost rank is reported and marked, not the one that noticed", "[clients]") {
  for (const int first : {0, 1}) {
    testing::FakeRun run(2);
    const absl::Status gone =
        WithOrigin(absl::UnavailableError("rank 1 is gone"), FailureOrigin::kAnotherRank);
    const absl::Status status =
        Collect(run, {gone, absl::UnavailableError("connection lost")}, first);
    REQUIRE(status.message() == "trainer 1: connection lost");
    REQUIRE(run.registry.Missing().size() == 1);
  }
}

TEST_CASE("Lost is the worker that did not answer, not the one that says so", "[clients]") {
  {
    testing::FakeRun run(2);
    const absl::Status partner =
        WithOrigin(absl::UnavailableError("BeginUpdate: socket closed"), FailureOrigin::kPartner);
    const absl::Status status = Collect(run, {absl::OkStatus(), partner}, 1);
    REQUIRE(status.message() == "rollout 1 (reported by trainer 1): BeginUpdate: socket closed");
    REQUIRE(run.registry.Missing().size() == 1);
    REQUIRE(run.registry.Missing()[0].rfind("rollout 1 (lost", 0) == 0);
  }
  {
    testing::FakeRun run(2);
    absl::Status answered = absl::UnavailableError("the rollout is starting");
    answered.SetPayload(kErrorInfoUrl, absl::Cord("who"));
    REQUIRE(absl::IsUnavailable(Collect(run, {absl::OkStatus(), answered}, 1)));
    REQUIRE(run.registry.Missing().empty());
  }
}

TEST_CASE("A rollout is blamed by the routes of the call, and no worker is without them",
          "[clients]") {
  const auto blame = [](const TrainerCallOptions& options) {
    testing::FakeRun run(2);
    const auto call = [](TrainerClient&, int rank, const Done<int>& done) {
      if (rank == 1) return done(rank);
      done(WithOrigin(absl::UnavailableError("socket closed"), FailureOrigin::kPartner));
    };
    const absl::Status status = CallAllTrainers<int>(run.pool, call, options).status();
    std::string text(status.message());
    for (const std::string& missing : run.registry.Missing()) text += "; " + missing.substr(0, 15);
    return text;
  };
  REQUIRE(blame({.rollouts = {{0, 1}, {1, 0}}}) ==
          "rollout 1 (reported by trainer 0): socket closed; rollout 1 (lost");
  REQUIRE(blame({}) == "trainer 0: socket closed");
}

TEST_CASE("The rank that failed has its grace to say so, uncancelled", "[clients]") {
  testing::FakeRun run(2);
  absl::Notification cancelled;
  run.on_cancel = [&] {
    if (!cancelled.HasBeenNotified()) cancelled.Notify();
  };
  std::jthread failed;
  const auto call = [&](TrainerClient&, int rank, Done<int> done) {
    if (rank == 0) return done(Noticed());
    failed = std::jthread([&cancelled, done = std::move(done)] {
      // A cancellation, which is wrong, has this long to come.
      (void)cancelled.WaitForNotificationWithTimeout(absl::Milliseconds(50));
      done(absl::ResourceExhaustedError("no space left"));
    });
  };
  const auto status =
      CallAllTrainers<int>(run.pool, call, {.grace = std::chrono::minutes(10)}).status();
  REQUIRE(status.message() == "trainer 1: no space left");
  REQUIRE_FALSE(cancelled.HasBeenNotified());
}

TEST_CASE("A rank that never says why does not hold up the others", "[clients]") {
  testing::FakeRun run(2);
  Done<int> silent;
  run.on_cancel = [&] {
    if (silent) std::exchange(silent, nullptr)(absl::CancelledError("given up"));
  };
  const auto call = [&](TrainerClient&, int rank, Done<int> done) {
    if (rank == 0) return done(Noticed());
    silent = std::move(done);
  };
  const auto status =
      CallAllTrainers<int>(run.pool, call, {.grace = std::chrono::milliseconds(20)}).status();
  REQUIRE(absl::IsAborted(status));
}

TEST_CASE("Results come by rank, whichever thread brings them", "[clients]") {
  testing::FakeRun run(3);
  std::vector<std::jthread> threads;
  const auto call = [&](TrainerClient&, int rank, Done<int> done) {
    threads.emplace_back([rank, done = std::move(done)] { done(10 * rank); });
  };
  const auto results = CallAllTrainers<int>(run.pool, call);
  REQUIRE(results.ok());
  REQUIRE(*results == std::vector<int>{0, 10, 20});
}

TEST_CASE("A caller that is interrupted ends the calls of all ranks", "[clients]") {
  testing::FakeRun run(2);
  std::vector<Done<int>> held;
  run.on_cancel = [&] {
    for (const Done<int>& done : std::exchange(held, {})) done(absl::CancelledError("ended"));
  };
  const auto call = [&](TrainerClient&, int, Done<int> done) { held.push_back(std::move(done)); };
  const absl::Status status =
      CallAllTrainers<int>(run.pool, call, {.interrupted = [] { return true; }}).status();
  REQUIRE(absl::IsCancelled(status));
  REQUIRE(status.message() == "interrupted");
}

}  // namespace tandem
