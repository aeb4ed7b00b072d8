#include "controller/rollouts/rollout_dispatcher.h"

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include <catch2/catch.hpp>

#include "tests/fakes/fake_rollout_client.h"

namespace tandem {
namespace {

std::vector<GroupRequest> DispatchedGroups(int count, int samples) {
  std::vector<GroupRequest> groups;
  for (int g = 0; g < count; ++g) {
    GroupRequest group{.version = 0, .prompt = {1}, .group = g};
    for (int i = 0; i < samples; ++i) {
      group.sample_ids.push_back(
          MakeSampleId(static_cast<uint64_t>(g), 0, static_cast<uint64_t>(i)));
    }
    groups.push_back(group);
  }
  return groups;
}

std::vector<Replica> Replicas(testing::CallJournal& journal, int count) {
  std::vector<Replica> replicas;
  for (int rank = 0; rank < count; ++rank) {
    replicas.push_back({rank, std::make_shared<testing::FakeRolloutClient>(journal, rank, 1)});
  }
  return replicas;
}

// A rollout that answers when the test says so.
class ThreadedRollout : public testing::FakeRolloutClient {
 public:
  ThreadedRollout(testing::CallJournal& journal, int rank) : FakeRolloutClient(journal, rank, 1) {}
  void Generate(const GroupRequest& request,
                std::function<void(Sample)> on_sample,
                std::function<void(absl::Status)> on_done) override {
    in_flight += static_cast<int>(request.sample_ids.size());
    most_in_flight = std::max(most_in_flight, in_flight.load());
    requests.push_back(request);
    // From another thread: later than Issue, as over a network.
    threads.emplace_back([this, request, on_sample, on_done] {
      for (const uint64_t id : request.sample_ids) {
        --in_flight;
        on_sample(testing::MakeFakeSample(request, id));
      }
      on_done(absl::OkStatus());
    });
  }
  std::atomic<int> in_flight = 0;  // samples
  int most_in_flight = 0;
  std::vector<GroupRequest> requests;
  std::vector<std::jthread> threads;
};

}  // namespace

TEST_CASE("RolloutDispatcher spreads groups and brings every sample once", "[dispatcher]") {
  testing::CallJournal journal;
  std::map<uint64_t, int> seen;
  RolloutDispatcher dispatcher({});
  const auto result =
      dispatcher.Dispatch(DispatchedGroups(6, 3), Replicas(journal, 3), [&](Sample sample) {
        ++seen[sample.sample_id];
        return absl::OkStatus();
      });
  REQUIRE(result.ok());
  REQUIRE(result->lost_ranks.empty());
  REQUIRE(result->unfinished.empty());
  REQUIRE(seen.size() == 18);
  for (const auto& [id, count] : seen) REQUIRE(count == 1);
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(journal.Count("rollout " + std::to_string(rank)) == 2);
  }
}

TEST_CASE("RolloutDispatcher re-issues what a lost rollout left, without repeats", "[dispatcher]") {
  testing::CallJournal journal;
  journal.FailNext("rollout 1", "Generate", absl::UnavailableError("gone"));
  std::map<uint64_t, int> seen;
  RolloutDispatcher dispatcher({});
  const auto result =
      dispatcher.Dispatch(DispatchedGroups(4, 3), Replicas(journal, 2), [&](Sample sample) {
        ++seen[sample.sample_id];
        return absl::OkStatus();
      });
  REQUIRE(result.ok());
  REQUIRE(result->lost_ranks == std::vector<int>{1});
  REQUIRE(seen.size() == 12);
  for (const auto& [id, count] : seen) REQUIRE(count == 1);
}

TEST_CASE("RolloutDispatcher hands back the rest when nobody is left", "[dispatcher]") {
  testing::CallJournal journal;
  journal.FailNext("rollout 0", "Generate", absl::UnavailableError("gone"));
  std::set<uint64_t> seen;
  RolloutDispatcher dispatcher({.max_in_flight_samples = 3});
  const auto result =
      dispatcher.Dispatch(DispatchedGroups(2, 3), Replicas(journal, 1), [&](Sample sample) {
        seen.insert(sample.sample_id);
        return absl::OkStatus();
      });
  REQUIRE(result.ok());
  REQUIRE(result->lost_ranks == std::vector<int>{0});
  size_t missing = 0;
  for (const GroupRequest& group : result->unfinished) missing += group.sample_ids.size();
  REQUIRE(seen.size() == 1);
  REQUIRE(missing == 5);
}

TEST_CASE("RolloutDispatcher gives up on failures that every rollout would repeat",
          "[dispatcher]") {
  testing::CallJournal journal;
  journal.FailNext("rollout 0", "Generate", absl::ResourceExhaustedError("prompt too long"));
  RolloutDispatcher dispatcher({});
  const auto result = dispatcher.Dispatch(DispatchedGroups(2, 2), Replicas(journal, 2),
                                          [](Sample) { return absl::OkStatus(); });
  REQUIRE(absl::IsResourceExhausted(result.status()));
  REQUIRE(std::string(result.status().message()).find("rollout 0") != std::string::npos);
}

TEST_CASE("RolloutDispatcher generates a group alone that was there at two losses",
          "[dispatcher]") {
  testing::CallJournal journal;
  const auto slow = std::make_shared<ThreadedRollout>(journal, 0);
  std::vector<GroupRequest> groups = DispatchedGroups(4, 2);
  groups[1].losses = 2;
  RolloutDispatcher dispatcher({});
  size_t samples = 0;
  const auto result = dispatcher.Dispatch(groups, {{0, slow}}, [&](Sample sample) {
    // The suspect's samples come when all before it are there, and before any that follows.
    if (sample.group == 1) REQUIRE(samples < 4);
    if (sample.group > 1) REQUIRE(samples >= 4);
    ++samples;
    return absl::OkStatus();
  });
  REQUIRE(result.ok());
  REQUIRE(samples == 8);
}

TEST_CASE("RolloutDispatcher blames a group for a loss only if nothing else ran", "[dispatcher]") {
  testing::CallJournal journal;
  journal.FailNext("rollout 0", "Generate", absl::UnavailableError("gone"), 0, 2);
  RolloutDispatcher dispatcher({});
  const auto take = [](Sample) { return absl::OkStatus(); };
  auto together = dispatcher.Dispatch(DispatchedGroups(2, 2), Replicas(journal, 1), take);
  REQUIRE(together.ok());
  REQUIRE(together->abandoned.ok());
  REQUIRE(together->unfinished.size() == 2);
  for (const GroupRequest& group : together->unfinished) {
    REQUIRE(group.losses == 1);
    REQUIRE(group.losses_alone == 0);
  }
}

TEST_CASE("RolloutDispatcher bounds what is in flight", "[dispatcher]") {
  testing::CallJournal journal;
  const auto slow = std::make_shared<ThreadedRollout>(journal, 0);
  int samples = 0;
  RolloutDispatcher dispatcher({.max_in_flight_samples = 4});
  const auto result = dispatcher.Dispatch(DispatchedGroups(10, 2), {{0, slow}}, [&](Sample) {
    ++samples;
    return absl::OkStatus();
  });
  REQUIRE(result.ok());
  REQUIRE(samples == 20);
  REQUIRE(slow->most_in_flight <= 4);
  REQUIRE(slow->requests.size() == 10);
}

TEST_CASE("RolloutDispatcher sends a group that names its rollout there, whatever the load",
          "[dispatcher]") {
  testing::CallJournal journal;
  std::vector<GroupRequest> groups = DispatchedGroups(6, 2);
  for (const int g : {1, 3, 5}) groups[static_cast<size_t>(g)].rank = 1;
  RolloutDispatcher dispatcher({.max_in_flight_samples = 2});
  const auto result =
      dispatcher.Dispatch(groups, Replicas(journal, 2), [](Sample) { return absl::OkStatus(); });
  REQUIRE(result.ok());
  REQUIRE(result->unfinished.empty());
  for (const std::string g : {"1", "3", "5"}) {
    REQUIRE(journal.Count("rollout 1 Generate(group " + g) == 1);
    REQUIRE(journal.Count("rollout 0 Generate(group " + g) == 0);
  }
}

TEST_CASE("RolloutDispatcher hands back the groups of a rollout that is gone, no others do them",
          "[dispatcher]") {
  testing::CallJournal journal;
  journal.FailNext("rollout 1", "Generate", absl::UnavailableError("gone"));
  std::vector<GroupRequest> groups = DispatchedGroups(4, 2);
  groups[3].rank = 1;
  std::set<int64_t> seen;
  RolloutDispatcher dispatcher({});
  const auto result = dispatcher.Dispatch(groups, Replicas(journal, 2), [&](Sample sample) {
    seen.insert(sample.group);
    return absl::OkStatus();
  });
  REQUIRE(result.ok());
  REQUIRE(result->unfinished.size() == 1);
  REQUIRE(result->unfinished[0].rank == 1);
  REQUIRE(journal.Count("rollout 0 Generate(group 3") == 0);
}

TEST_CASE("RolloutDispatcher gives prompts to rollouts that come back", "[dispatcher]") {
  testing::CallJournal journal;
  journal.FailNext("rollout 0", "Generate", absl::UnavailableError("gone"));
  std::vector<Replica> back;
  RolloutDispatcher dispatcher(
      {.max_in_flight_samples = 2,
       .on_lost =
           [&](const Replica& lost) {
             back = {{lost.rank, std::make_shared<testing::FakeRolloutClient>(journal, 0, 2)}};
           },
       .rejoined = [&] { return JoiningReplicas{.replicas = std::exchange(back, {})}; }});
  std::set<uint64_t> seen;
  // Nobody else could make them.
  std::vector<GroupRequest> groups = DispatchedGroups(3, 2);
  groups[1].rank = 0;
  const auto result = dispatcher.Dispatch(groups, Replicas(journal, 1), [&](Sample sample) {
    REQUIRE(seen.insert(sample.sample_id).second);
    return absl::OkStatus();
  });
  REQUIRE(result.ok());
  REQUIRE(result->unfinished.empty());
  REQUIRE(result->lost_ranks == std::vector<int>{0});
  REQUIRE(seen.size() == 6);
}

TEST_CASE("RolloutDispatcher can be interrupted", "[dispatcher]") {
  testing::CallJournal journal;
  RolloutDispatcher dispatcher({.interrupted = [] { return true; }});
  const auto result = dispatcher.Dispatch(DispatchedGroups(2, 2), Replicas(journal, 1),
                                          [](Sample) { return absl::OkStatus(); });
  REQUIRE(absl::IsCancelled(result.status()));
}

}  // namespace tandem
