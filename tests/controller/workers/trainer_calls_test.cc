#include "controller/workers/trainer_calls.h"

#include <future>
#include <mutex>

#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

absl::Status Noticed() {
  return WithOrigin(absl::AbortedError("trainer 1 failed; its own message says why"),
                    FailureOrigin::kAnotherRank);
}

// Every rank's answer; the others answer when that of rank `first` has been taken, or, as they
// cannot see that, when there was much time for it.
absl::Status Collect(testing::FakeRun& run, const std::vector<absl::Status>& answers, int first) {
  std::promise<void> answered;
  const std::shared_future<void> over = answered.get_future().share();
  const auto call = [&](TrainerClient&, int rank) -> absl::StatusOr<int> {
    if (rank != first) (void)over.wait_for(std::chrono::milliseconds(100));
    const absl::Status& answer = answers[static_cast<size_t>(rank)];
    if (answer.ok()) return rank;
    return answer;
  };
  const SyncRoutes routes = run.placement.Routes();
  return CallAllTrainers<int>(run.pool, call, {.routes = &routes}).status();
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
    const auto call = [](TrainerClient&, int rank) -> absl::StatusOr<int> {
      if (rank == 1) return rank;
      return WithOrigin(absl::UnavailableError("socket closed"), FailureOrigin::kPartner);
    };
    const absl::Status status = CallAllTrainers<int>(run.pool, call, options).status();
    std::string text(status.message());
    for (const std::string& missing : run.registry.Missing()) text += "; " + missing.substr(0, 15);
    return text;
  };
  const SyncRoutes crossed({{.trainer = 0, .rollout = 1}, {.trainer = 1, .rollout = 0}});
  REQUIRE(blame({.routes = &crossed}) ==
          "rollout 1 (reported by trainer 0): socket closed; rollout 1 (lost");
  REQUIRE(blame({}) == "trainer 0: socket closed");
}

TEST_CASE("A rank that never says why does not hold up the others", "[clients]") {
  testing::FakeRun run(2);
  std::promise<void> given_up;
  std::once_flag once;
  run.on_cancel = [&] { std::call_once(once, [&] { given_up.set_value(); }); };
  const auto call = [&](TrainerClient&, int rank) -> absl::StatusOr<int> {
    if (rank == 0) return Noticed();
    given_up.get_future().wait();
    return absl::CancelledError("given up");
  };
  const auto status =
      CallAllTrainers<int>(run.pool, call, {.grace = std::chrono::milliseconds(20)}).status();
  REQUIRE(absl::IsAborted(status));
}

}  // namespace tandem
