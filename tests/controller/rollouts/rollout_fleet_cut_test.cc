// Rounds that end early while rollouts are lost and replaced.
#include <map>

#include <catch2/catch.hpp>

#include "controller/rollouts/rollout_fleet.h"
#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

std::vector<GroupRequest> ServedGroups(uint64_t count) {
  std::vector<GroupRequest> groups;
  for (uint64_t row = 0; row < count; ++row) {
    GroupRequest group{.request_id = fmt::format("3-1-{}", row),
                       .version = 0,
                       .prompt = {1},
                       .params = {.max_tokens = 50},
                       .group = static_cast<int64_t>(row),
                       .interruptible = true};
    for (uint64_t i = 0; i < 3; ++i) group.sample_ids.push_back(MakeSampleId(row, 0, i));
    groups.push_back(group);
  }
  return groups;
}

using Samples = std::map<uint64_t, Sample>;

// All groups' last samples are held up after five tokens.
void Start(testing::FakeRun& run) {
  run.fleet_options.max_in_flight_samples = 3;
  run.responses = {.length = [](uint64_t) { return 12; },
                   .held_after = [](uint64_t id) -> std::optional<int64_t> {
                     return (id & 0xfff) == 2 ? std::optional<int64_t>(5) : std::nullopt;
                   }};
  run.Prepare(StartMode::kPaused);
  REQUIRE(run.weights.Sync(0, "").ok());
  REQUIRE(run.weights.Wake().ok());
}

absl::Status Generate(testing::FakeRun& run,
                      const std::vector<GroupRequest>& groups,
                      Samples& samples,
                      const std::function<bool()>& cut) {
  const auto take = [&](const Sample& sample) {
    REQUIRE(samples.emplace(sample.sample_id, sample).second);
    return absl::OkStatus();
  };
  return run.fleet->Generate(groups, 0, take, {.end_round = cut});
}

}  // namespace

TEST_CASE("A round ends when it is told to, and what was running keeps its tokens", "[serving]") {
  testing::FakeRun run(2);
  Start(run);
  Samples samples;
  int asked_after = 0;
  const absl::Status status = Generate(run, ServedGroups(4), samples, [&] {
    const bool now = samples.size() >= 4;
    asked_after += now ? 1 : 0;
    return now;
  });
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE(asked_after == 1);
  REQUIRE(samples.size() == 6);
  for (const auto& [id, sample] : samples) {
    const bool held = (id & 0xfff) == 2;
    REQUIRE(sample.response_tokens() == (held ? 5 : 12));
    REQUIRE(sample.finish_reason == (held ? FinishReason::kAborted : FinishReason::kStop));
  }
  // The rollouts serve on: a next round needs nothing in between.
  Samples next;
  REQUIRE(Generate(run, ServedGroups(4), next, [&] { return next.size() >= 4; }).ok());
  REQUIRE(next.size() == 6);
}

TEST_CASE("F3: a rollout lost in the middle of a round comes back, and the round still ends early",
          "[serving][recovery]") {
  testing::FakeRun run(2);
  Start(run);
  run.DieAt({WorkerRole::kRollout, 1}, "Generate");
  Samples samples;
  // One of its three came before it died; the other two go on elsewhere, or at its successor.
  const absl::Status status =
      Generate(run, ServedGroups(2), samples, [&] { return samples.size() >= 4; });
  INFO(status.ToString());
  REQUIRE(status.ok());
  REQUIRE(samples.size() == 6);
  REQUIRE(samples.at(MakeSampleId(1, 0, 2)).finish_reason == FinishReason::kAborted);
  REQUIRE(run.weights.Complete(0));
  REQUIRE(run.budget.spent() == 1);
}

TEST_CASE("F3: what a rollout takes along after the cut is left as it was, and it comes back",
          "[serving][recovery]") {
  testing::FakeRun run(1);
  Start(run);
  std::vector<GroupRequest> groups = ServedGroups(3);
  groups[2].interruptible = false;
  run.DieAt({WorkerRole::kRollout, 0}, "Generate");
  Samples samples;
  bool cut = false;
  // The cut is seen when its first sample is there: before its end is.
  const absl::Status status = Generate(run, groups, samples, [&] {
    const bool now = samples.size() == 1;
    REQUIRE(!(cut && now));
    return cut = now;
  });
  INFO(status.ToString());
  REQUIRE(status.ok());
  // Its first sample, and all of the group that may not be cut, made by its successor.
  REQUIRE(samples.size() == 4);
  REQUIRE(samples.count(MakeSampleId(0, 0, 0)) == 1);
  for (uint64_t i = 0; i < 3; ++i) {
    REQUIRE(samples.at(MakeSampleId(2, 0, i)).finish_reason == FinishReason::kStop);
  }
  REQUIRE(run.weights.Complete(0));
}

}  // namespace tandem
