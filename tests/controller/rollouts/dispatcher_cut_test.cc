// Rounds that end early, and samples that continue.
#include <map>
#include <set>

#include <catch2/catch.hpp>

#include "controller/rollouts/rollout_dispatcher.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_rollout_client.h"

namespace tandem {
namespace {

using testing::ContinuationOf;
using testing::FakeResponses;
using testing::FakeRolloutClient;
using testing::FakeToken;
using Samples = std::map<uint64_t, Sample>;

uint64_t IdOf(int group, int sample) {
  return MakeSampleId(static_cast<uint64_t>(group), 0, static_cast<uint64_t>(sample));
}
int GroupOf(uint64_t id) { return static_cast<int>(id >> 24); }

// Groups that may be cut, of samples that have 20 tokens in the end.
std::vector<GroupRequest> CuttableGroups(int count, int samples) {
  std::vector<GroupRequest> groups;
  for (int g = 0; g < count; ++g) {
    GroupRequest group{.request_id = fmt::format("1-0-{}", g),
                       .version = 0,
                       .prompt = {1},
                       .params = {.max_tokens = 100},
                       .group = g,
                       .interruptible = true};
    for (int i = 0; i < samples; ++i) group.sample_ids.push_back(IdOf(g, i));
    groups.push_back(group);
  }
  return groups;
}

FakeResponses Responses(const std::function<std::optional<int64_t>(uint64_t)>& held_after) {
  return {.length = [](uint64_t) { return 20; }, .held_after = held_after};
}
// The last samples of groups take longer.
std::optional<int64_t> LastHeld(uint64_t id) {
  return (id & 0xfff) == 2 ? std::optional<int64_t>(4 + GroupOf(id)) : std::nullopt;
}

struct Fakes {
  testing::CallJournal journal;
  std::vector<std::shared_ptr<FakeRolloutClient>> clients;
  std::vector<Replica> replicas;

  Fakes(int count, const FakeResponses& responses) {
    for (int rank = 0; rank < count; ++rank) {
      Add(std::make_shared<FakeRolloutClient>(journal, rank, 1), responses);
    }
  }
  void Add(std::shared_ptr<FakeRolloutClient> client, const FakeResponses& responses) {
    client->responses = responses;
    replicas.push_back({static_cast<int>(replicas.size()), client});
    clients.push_back(std::move(client));
  }
};

// Every sample once, made only of its own tokens.
std::function<absl::Status(Sample)> Into(Samples& samples) {
  return [&samples](const Sample& sample) {
    for (int64_t i = 0; i < sample.response_tokens(); ++i) {
      REQUIRE(sample.tokens[static_cast<size_t>(sample.prompt_tokens + i)] ==
              FakeToken(sample.sample_id, i));
    }
    REQUIRE(samples.emplace(sample.sample_id, sample).second);
    return absl::OkStatus();
  };
}

// Goes on from 3 tokens each, all of version 0.
Continuation ThreeTokens(uint64_t id) {
  GroupRequest request{.version = 0, .sample_ids = {id}, .params = {.max_tokens = 3}};
  return ContinuationOf(MakeFakeResponse(request, 0, Responses(nullptr)));
}

}  // namespace

TEST_CASE("A cut brings what running samples have and leaves waiting groups unsent",
          "[dispatcher]") {
  Fakes fakes(2, Responses(LastHeld));
  Samples samples;
  // Three samples of a group fill a replica: groups 2 to 4 wait.
  RolloutDispatcher dispatcher(
      {.max_in_flight_samples = 3, .end_round = [&] { return samples.size() >= 4; }});
  const auto result = dispatcher.Dispatch(CuttableGroups(5, 3), fakes.replicas, Into(samples));
  REQUIRE(result.ok());
  REQUIRE(result->unfinished.empty());
  REQUIRE(result->lost_ranks.empty());
  REQUIRE(samples.size() == 6);
  for (const auto& [id, sample] : samples) {
    const bool held = LastHeld(id).has_value();
    REQUIRE(sample.finish_reason == (held ? FinishReason::kAborted : FinishReason::kStop));
    REQUIRE(sample.response_tokens() == (held ? 4 + GroupOf(id) : 20));
  }
  // By name, each where it runs, and nothing else.
  REQUIRE(fakes.journal.Count("rollout 0 Abort(1-0-0)") == 1);
  REQUIRE(fakes.journal.Count("rollout 1 Abort(1-0-1)") == 1);
  REQUIRE(fakes.journal.Count("rollout 0 Abort") == 1);
  REQUIRE(fakes.journal.Count("rollout 0 Generate") == 1);
}

TEST_CASE("A round that is cut from the start sends only what may not be cut", "[dispatcher]") {
  Fakes fakes(1, Responses(LastHeld));
  std::vector<GroupRequest> groups = CuttableGroups(3, 3);
  groups[1].interruptible = false;
  Samples samples;
  RolloutDispatcher dispatcher({.end_round = [] { return true; }});
  REQUIRE(dispatcher.Dispatch(groups, fakes.replicas, Into(samples)).ok());
  REQUIRE(samples.size() == 3);
  for (const auto& [id, sample] : samples) {
    REQUIRE(GroupOf(id) == 1);
    REQUIRE(sample.finish_reason == FinishReason::kStop);
  }
  REQUIRE(fakes.journal.Count("rollout 0 Abort") == 0);
}

TEST_CASE("Groups that may not be cut run to their end, waiting ones too", "[dispatcher]") {
  Fakes fakes(1, Responses(LastHeld));
  std::vector<GroupRequest> groups = CuttableGroups(6, 3);
  for (const size_t g : {1u, 5u}) groups[g].interruptible = false;
  Samples samples;
  RolloutDispatcher dispatcher(
      {.max_in_flight_samples = 3, .end_round = [&] { return samples.size() >= 2; }});
  REQUIRE(dispatcher.Dispatch(groups, fakes.replicas, Into(samples)).ok());
  REQUIRE(samples.size() == 9);
  for (const auto& [id, sample] : samples) {
    REQUIRE((GroupOf(id) == 0 || GroupOf(id) == 1 || GroupOf(id) == 5));
    const bool aborted = GroupOf(id) == 0 && LastHeld(id);
    REQUIRE(sample.finish_reason == (aborted ? FinishReason::kAborted : FinishReason::kStop));
  }
}

TEST_CASE("Samples that have the tokens of their round come without any cut", "[dispatcher]") {
  Fakes fakes(1, Responses(nullptr));
  std::vector<GroupRequest> groups = CuttableGroups(2, 3);
  for (GroupRequest& group : groups) {
    for (const uint64_t id : group.sample_ids) {
      group.continued.push_back(ThreeTokens(id));
      group.continued.back().max_new_tokens = (id & 0xfff) == 0 ? 17 : 5;
    }
  }
  Samples samples;
  REQUIRE(RolloutDispatcher({}).Dispatch(groups, fakes.replicas, Into(samples)).ok());
  REQUIRE(samples.size() == 6);
  for (const auto& [id, sample] : samples) {
    const bool whole = (id & 0xfff) == 0;
    REQUIRE(sample.finish_reason == (whole ? FinishReason::kStop : FinishReason::kCut));
    REQUIRE(sample.response_tokens() == (whole ? 20 : 8));
  }
}

TEST_CASE("A replica lost before the cut: what it had goes on at another from where it began",
          "[dispatcher]") {
  Fakes fakes(2, Responses(nullptr));
  fakes.journal.FailNext("rollout 1", "Generate", absl::UnavailableError("gone"));
  std::vector<GroupRequest> groups = CuttableGroups(4, 3);
  for (GroupRequest& group : groups) {
    for (const uint64_t id : group.sample_ids) group.continued.push_back(ThreeTokens(id));
  }
  Samples samples;
  RolloutDispatcher dispatcher({.end_round = [] { return false; }});
  const auto result = dispatcher.Dispatch(groups, fakes.replicas, Into(samples));
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  REQUIRE(result->lost_ranks == std::vector<int>{1});
  REQUIRE(samples.size() == 12);
  // The request that was sent again has the two that were missing, each with its own past.
  const std::vector<GroupRequest> sent = fakes.clients[0]->requests();
  size_t again = 0;
  for (const GroupRequest& request : sent) {
    REQUIRE(request.continued.size() == request.sample_ids.size());
    again += request.sample_ids.size() == 2 ? 1 : 0;
  }
  REQUIRE(again == 1);
}

TEST_CASE("A replica lost after the cut: what may be cut is left, the rest goes to another",
          "[dispatcher]") {
  // Both hold their first group up. The second dies over the call that is to end it, and takes a
  // group that may not be cut along.
  Fakes fakes(1, Responses(LastHeld));
  class Dies : public FakeRolloutClient {
   public:
    using FakeRolloutClient::FakeRolloutClient;
    void Generate(const GroupRequest& request,
                  std::function<void(Sample)> on_sample,
                  std::function<void(absl::Status)> on_done) override {
      if (request.interruptible) return FakeRolloutClient::Generate(request, on_sample, on_done);
      must_run_ = std::move(on_done);
    }
    void Abort(const std::vector<std::string>&, StatusDone done) override {
      EndAll(absl::UnavailableError("gone"));
      if (must_run_) must_run_(absl::UnavailableError("gone"));
      done(absl::UnavailableError("gone"));
    }

   private:
    std::function<void(absl::Status)> must_run_;
  };
  fakes.Add(std::make_shared<Dies>(fakes.journal, 1, 1), Responses(LastHeld));
  std::vector<GroupRequest> groups = CuttableGroups(4, 3);
  groups[3].interruptible = false;
  groups[3].rank = -1;
  Samples samples;
  std::vector<int> lost;
  // Groups 0 and 2 at the first, 1 and 3 at the second.
  RolloutDispatcher dispatcher({.end_round = [&] { return samples.size() >= 6; },
                                .on_lost = [&](const Replica& r) { lost.push_back(r.rank); }});
  const auto result = dispatcher.Dispatch(groups, fakes.replicas, Into(samples));
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  REQUIRE(result->unfinished.empty());
  REQUIRE(lost == std::vector<int>{1});
  // Group 1's third sample never came.
  REQUIRE(samples.size() == 3 + 2 + 3 + 3);
  REQUIRE(samples.count(IdOf(1, 2)) == 0);
  REQUIRE(samples.at(IdOf(0, 2)).finish_reason == FinishReason::kAborted);
  REQUIRE(samples.at(IdOf(3, 2)).finish_reason == FinishReason::kStop);
  REQUIRE(fakes.journal.Count("rollout 0 Generate(group 3") == 1);
  REQUIRE(fakes.journal.Count("rollout 0 Generate(group 1") == 0);
}

TEST_CASE("After a cut with nobody left, the rest has only what may not be cut", "[dispatcher]") {
  Fakes fakes(1, Responses(LastHeld));
  fakes.journal.FailNext("rollout 0", "Generate", absl::UnavailableError("gone"));
  std::vector<GroupRequest> groups = CuttableGroups(4, 3);
  groups[2].interruptible = false;
  Samples samples;
  RolloutDispatcher dispatcher(
      {.max_in_flight_samples = 3, .end_round = [&] { return !samples.empty(); }});
  const auto result = dispatcher.Dispatch(groups, fakes.replicas, Into(samples));
  REQUIRE(result.ok());
  REQUIRE(samples.size() == 1);
  REQUIRE(result->unfinished.size() == 1);
  REQUIRE(result->unfinished[0].group == 2);
}

TEST_CASE("Samples that somebody else aborted are not taken, cut or not", "[dispatcher]") {
  // Aborts by itself what it is asked for.
  class Aborts : public FakeRolloutClient {
   public:
    using FakeRolloutClient::FakeRolloutClient;
    void Generate(const GroupRequest& request,
                  std::function<void(Sample)> on_sample,
                  std::function<void(absl::Status)> on_done) override {
      FakeRolloutClient::Generate(request, std::move(on_sample), std::move(on_done));
      Abort({request.request_id}, [](const absl::Status&) {});
    }
  };
  for (const bool interruptible : {true, false}) {
    Fakes fakes(0, {});
    fakes.Add(std::make_shared<Aborts>(fakes.journal, 0, 1), Responses(LastHeld));
    std::vector<GroupRequest> groups = CuttableGroups(1, 3);
    RolloutDispatcher dispatcher({.end_round = [&] { return !interruptible; }});
    // A group that may not be cut is not held up by the fake, so nothing of it is aborted.
    groups[0].interruptible = interruptible;
    Samples samples;
    const auto result = dispatcher.Dispatch(groups, fakes.replicas, Into(samples));
    REQUIRE(result.ok());
    REQUIRE(samples.size() == (interruptible ? 2 : 3));
    REQUIRE(result->lost_ranks.size() == (interruptible ? 1 : 0));
    REQUIRE(result->unfinished.size() == (interruptible ? 1 : 0));
  }
}

// Its first aborts end nothing: a failure, then a request that was not known yet.
class Late : public FakeRolloutClient {
 public:
  using FakeRolloutClient::FakeRolloutClient;
  void Abort(const std::vector<std::string>& request_ids, StatusDone done) override {
    aborted_after.push_back(taken);
    ids.insert(request_ids.begin(), request_ids.end());
    if (aborted_after.size() == 1) return done(absl::DeadlineExceededError("busy"));
    if (aborted_after.size() == 2) return done(absl::OkStatus());
    FakeRolloutClient::Abort(request_ids, std::move(done));
  }
  std::vector<int> aborted_after;  // so many samples
  std::set<std::string> ids;
  int taken = 0;
};

TEST_CASE("An abort that was in vain, or came before its request, is made again", "[dispatcher]") {
  Fakes fakes(0, {});
  const auto late = std::make_shared<Late>(fakes.journal, 0, 1);
  fakes.Add(late, Responses(LastHeld));
  Samples samples;
  RolloutDispatcher dispatcher({.end_round = [&] { return samples.size() == 2; }});
  const auto result = dispatcher.Dispatch(CuttableGroups(1, 3), fakes.replicas, Into(samples));
  REQUIRE(result.ok());
  REQUIRE(result->lost_ranks.empty());
  REQUIRE(late->aborted_after.size() == 3);
  REQUIRE(late->ids == std::set<std::string>{"1-0-0"});
  REQUIRE(samples.at(IdOf(0, 2)).response_tokens() == 4);
}

TEST_CASE("An abort is made again while samples that may not be cut go on coming", "[dispatcher]") {
  Fakes fakes(0, {});
  const auto late = std::make_shared<Late>(fakes.journal, 0, 1);
  fakes.Add(late, Responses(LastHeld));
  // All in the inbox at once, so that no moment is quiet.
  std::vector<GroupRequest> groups = CuttableGroups(2, 3);
  for (int i = 3; i < 20; ++i) groups[1].sample_ids.push_back(IdOf(1, i));
  groups[1].interruptible = false;
  testing::FakeClock clock;
  Samples samples;
  const auto put = Into(samples);
  RolloutDispatcher dispatcher({.end_round = [&] { return samples.size() >= 2; }, .clock = &clock});
  const auto result = dispatcher.Dispatch(groups, fakes.replicas, [&](const Sample& sample) {
    ++late->taken;
    clock.Advance(absl::Milliseconds(300));
    return put(sample);
  });
  REQUIRE(result.ok());
  REQUIRE(samples.size() == 3 + 20);
  REQUIRE(samples.at(IdOf(0, 2)).finish_reason == FinishReason::kAborted);
  // Four samples are more than the second after which it is made again.
  REQUIRE(late->aborted_after.size() >= 3);
  late->aborted_after.resize(3);
  REQUIRE(late->aborted_after == std::vector<int>{2, 6, 10});
}

TEST_CASE("Sample by sample, rounds that are cut at any moment end in whole responses",
          "[dispatcher]") {
  for (const int held : {0, 1, 7}) {
    Samples samples;
    int rounds = 0;
    std::vector<GroupRequest> groups = CuttableGroups(3, 3);
    for (; !groups.empty(); ++rounds) {
      REQUIRE(rounds < 200);
      // Another one is held up in each round, so that all come to their end.
      Fakes fakes(2, Responses([&](uint64_t id) {
                    const bool now = static_cast<int>((id & 0xfff) + id / 4096) % 3 != rounds % 3;
                    return now ? std::optional<int64_t>(held) : std::nullopt;
                  }));
      size_t came = 0;
      RolloutDispatcher dispatcher({.end_round = [&] { return came > 0; }});
      const auto take = [&](const Sample& sample) {
        ++came;
        samples[sample.sample_id] = sample;
        return absl::OkStatus();
      };
      const auto result = dispatcher.Dispatch(groups, fakes.replicas, take);
      INFO(result.status().ToString());
      REQUIRE(result.ok());
      std::vector<GroupRequest> next;
      for (const GroupRequest& group : groups) {
        GroupRequest rest = group;
        rest.sample_ids.clear();
        rest.continued.clear();
        for (const uint64_t id : group.sample_ids) {
          const auto found = samples.find(id);
          const bool known = found != samples.end();
          if (known && found->second.finish_reason == FinishReason::kStop) continue;
          rest.sample_ids.push_back(id);
          rest.continued.push_back(known ? ContinuationOf(found->second) : Continuation{});
        }
        if (!rest.sample_ids.empty()) next.push_back(std::move(rest));
      }
      groups = std::move(next);
    }
    REQUIRE(rounds > 1);
    REQUIRE(samples.size() == 9);
    Samples checked;
    for (const auto& [id, sample] : samples) {
      REQUIRE(sample.response_tokens() == 20);
      REQUIRE(Into(checked)(sample).ok());
    }
  }
}

TEST_CASE("What may be cut must have a request id that nothing else has", "[dispatcher]") {
  Fakes fakes(1, Responses(nullptr));
  const auto refused = [&](std::vector<GroupRequest> groups) {
    RolloutDispatcher dispatcher({.end_round = [] { return false; }});
    Samples samples;
    const auto result = dispatcher.Dispatch(std::move(groups), fakes.replicas, Into(samples));
    REQUIRE(absl::IsInvalidArgument(result.status()));
    REQUIRE(samples.empty());
    return std::string(result.status().message());
  };
  std::vector<GroupRequest> groups = CuttableGroups(2, 1);
  groups[1].interruptible = false;
  groups[1].request_id = groups[0].request_id;
  REQUIRE(refused(groups).find("group 0 is interruptible, but its request id '1-0-0'") == 0);
  groups = CuttableGroups(2, 1);
  groups[1].request_id.clear();
  REQUIRE(refused(groups).find("group 1 is interruptible, but its request id '' is empty") == 0);
}

}  // namespace tandem
