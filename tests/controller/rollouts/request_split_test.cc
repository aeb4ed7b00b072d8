// The content of requests: its size, and how long the controller holds it.
#include <numeric>
#include <set>

#include <catch2/catch.hpp>

#include "controller/rollouts/rollout_dispatcher.h"
#include "tests/fakes/fake_rollout_client.h"

namespace tandem {
namespace {

using testing::FakeRolloutClient;
using testing::FakeToken;

// `samples` that go on from `tokens` tokens each, of 1 + 4 + 1 bytes on the wire.
GroupRequest Continued(int samples, int tokens) {
  GroupRequest request{.request_id = "5-1-0",
                       .version = 1,
                       .prompt = {1, 2, 3},
                       .params = {.max_tokens = 100000},
                       .group = 4,
                       .interruptible = true};
  for (int i = 0; i < samples; ++i) {
    const auto id = static_cast<uint64_t>(100 + i);
    request.sample_ids.push_back(id);
    request.continued.emplace_back();
    for (int t = 0; t < tokens; ++t) {
      request.continued.back().tokens.push_back(FakeToken(id, t));
      request.continued.back().log_probs.push_back(testing::FakeLogProb(id, t));
      request.continued.back().versions.push_back(0);
    }
  }
  return request;
}

}  // namespace

TEST_CASE("A group that is too large for a request is split by samples, in order") {
  const GroupRequest group = Continued(7, 1000);
  // Two samples fit.
  const auto parts = SplitRequest(group, 13000).value();
  REQUIRE(parts.size() == 4);
  std::vector<uint64_t> ids;
  for (const GroupRequest& part : parts) {
    REQUIRE(part.request_id == "5-1-0");
    REQUIRE(part.prompt == group.prompt);
    REQUIRE(part.group == 4);
    REQUIRE(part.interruptible);
    REQUIRE(part.sample_ids.size() == part.continued.size());
    REQUIRE(part.sample_ids.size() <= 2);
    for (size_t i = 0; i < part.sample_ids.size(); ++i) {
      REQUIRE(part.continued[i].tokens[0] == FakeToken(part.sample_ids[i], 0));
      ids.push_back(part.sample_ids[i]);
    }
  }
  REQUIRE(ids == group.sample_ids);
  REQUIRE(SplitRequest(group, kMaxRequestBytes).value().size() == 1);
  REQUIRE(SplitRequest(group, kMaxRequestBytes).value()[0].continued.size() == 7);
}

TEST_CASE("A group without a past is never split, whatever its prompt") {
  GroupRequest group{.prompt = std::vector<int32_t>(10000, 7), .sample_ids = {1, 2, 3}};
  const auto parts = SplitRequest(group, 100).value();
  REQUIRE(parts.size() == 1);
  REQUIRE(parts[0].sample_ids == group.sample_ids);
}

TEST_CASE("A sample that no request can carry is refused by name") {
  const absl::Status refused = SplitRequest(Continued(2, 1000), 5000).status();
  REQUIRE(absl::IsInvalidArgument(refused));
  REQUIRE(std::string(refused.message()).find("sample 100 continues from 1000 tokens") == 0);
}

TEST_CASE("RolloutDispatcher sends a large group in parts, and a cut ends all of them",
          "[dispatcher]") {
  for (const bool cut : {false, true}) {
    testing::CallJournal journal;
    const auto client = std::make_shared<FakeRolloutClient>(journal, 0, 1);
    client->responses = {.length = [](uint64_t) { return 1010; },
                         .held_after = [&](uint64_t) -> std::optional<int64_t> {
                           return cut ? std::optional<int64_t>(3) : std::nullopt;
                         }};
    std::map<uint64_t, int64_t> lengths;
    RolloutDispatcher dispatcher(
        {.end_round = [&] { return cut && journal.Count("rollout 0") >= 4; },
         .max_request_bytes = 13000});
    const auto result =
        dispatcher.Dispatch({Continued(7, 1000)}, {{0, client}}, [&](const Sample& sample) {
          REQUIRE(lengths.emplace(sample.sample_id, sample.response_tokens()).second);
          return absl::OkStatus();
        });
    INFO(result.status().ToString());
    REQUIRE(result.ok());
    REQUIRE(client->requests().size() == 4);
    REQUIRE(lengths.size() == 7);
    for (const auto& [id, length] : lengths) REQUIRE(length == (cut ? 1003 : 1010));
    REQUIRE(journal.Count("rollout 0 Abort(5-1-0)") == (cut ? 1 : 0));
  }
}

TEST_CASE("What samples go on from is loaded right before it is sent, and again after a loss",
          "[dispatcher]") {
  testing::CallJournal journal;
  journal.FailNext("rollout 1", "Generate", absl::UnavailableError("gone"));
  std::vector<Replica> replicas;
  for (int rank = 0; rank < 2; ++rank) {
    const auto client = std::make_shared<FakeRolloutClient>(journal, rank, 1);
    client->responses.length = [](uint64_t) { return 20; };
    replicas.push_back({rank, client});
  }
  std::vector<std::vector<uint64_t>> loads;
  std::vector<GroupRequest> groups;
  for (int g = 0; g < 3; ++g) {
    GroupRequest group = Continued(3, 5);
    group.request_id = fmt::format("5-1-{}", g);
    group.group = g;
    for (uint64_t& id : group.sample_ids) id += static_cast<uint64_t>(10 * g);
    group.continued.clear();
    group.load_continued = [&loads](const std::vector<uint64_t>& ids) {
      loads.push_back(ids);
      std::vector<Continuation> continued;
      for (const uint64_t id : ids) {
        GroupRequest one{.version = 0, .sample_ids = {id}, .params = {.max_tokens = 5}};
        continued.push_back(testing::ContinuationOf(
            testing::MakeFakeResponse(one, 0, {.length = [](uint64_t) { return 20; }})));
      }
      return continued;
    };
    groups.push_back(std::move(group));
  }
  std::set<uint64_t> seen;
  RolloutDispatcher dispatcher({.max_in_flight_samples = 3});
  const auto result = dispatcher.Dispatch(groups, replicas, [&](const Sample& sample) {
    REQUIRE(sample.response_tokens() == 20);
    REQUIRE(sample.versions[4] == 0);
    REQUIRE(sample.versions[5] == 1);
    REQUIRE(seen.insert(sample.sample_id).second);
    return absl::OkStatus();
  });
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  REQUIRE(seen.size() == 9);
  // Group 1 again, without the sample that came before its replica died.
  REQUIRE(loads.size() == 4);
  REQUIRE(loads[0] == std::vector<uint64_t>{100, 101, 102});
  REQUIRE(loads[1] == std::vector<uint64_t>{110, 111, 112});
  REQUIRE(std::count(loads.begin(), loads.end(), std::vector<uint64_t>{111, 112}) == 1);
}

TEST_CASE("What cannot be loaded ends the dispatch by the group's number", "[dispatcher]") {
  testing::CallJournal journal;
  const std::vector<Replica> replicas = {{0, std::make_shared<FakeRolloutClient>(journal, 0, 1)}};
  GroupRequest group = Continued(3, 5);
  const auto ends = [&] {
    return RolloutDispatcher({})
        .Dispatch({group, group}, replicas, [](const Sample&) { return absl::OkStatus(); })
        .status();
  };
  group.load_continued = [](const auto&) { return absl::DataLossError("the file was cut"); };
  REQUIRE(ends().ToString() == "DATA_LOSS: group 4: the file was cut");
  group.load_continued = [](const auto&) { return std::vector<Continuation>(2); };
  REQUIRE(ends().ToString() == "INTERNAL: group 4: 2 continuations were loaded for 3 samples");
  REQUIRE(journal.Count("rollout 0 Generate") == 0);
}

}  // namespace tandem
