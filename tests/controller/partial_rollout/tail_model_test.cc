#include "controller/partial_rollout/tail_model.h"

#include <cmath>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Samples of groups of `n`, which arrive as an engine of this cost would give them.
TailPass Pass(const std::vector<int64_t>& lengths,
              int64_t slots,
              const EngineCost& cost,
              int64_t n = 1,
              int64_t prompt = 0) {
  TailPass pass{.slots = slots};
  std::vector<SlotJob> jobs;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto group = static_cast<int64_t>(i) / n;
    const bool first = static_cast<int64_t>(i) % n == 0;
    pass.samples.push_back(
        {.group = group, .prompt_tokens = prompt, .response_tokens = lengths[i]});
    jobs.push_back({.prefill = first ? prompt : 0, .tokens = lengths[i]});
  }
  const SlotReplay replay = ReplaySlots(jobs, slots);
  const auto seconds = [&](const EngineWork& work) {
    return cost.step * static_cast<double>(work.steps) +
           cost.token * static_cast<double>(work.tokens);
  };
  for (size_t i = 0; i < lengths.size(); ++i) pass.samples[i].arrived = seconds(replay.ends[i]);
  pass.seconds = seconds(replay.all);
  return pass;
}

CapPrediction Predict(const TailPass& pass, int64_t cap) {
  return PredictCap(pass, FitEngineCost(pass), cap, 8);
}

std::vector<int64_t> OneLong(int64_t samples, int64_t others, int64_t longest) {
  std::vector<int64_t> lengths(static_cast<size_t>(samples), others);
  lengths[lengths.size() / 2] = longest;
  return lengths;
}

}  // namespace

TEST_CASE("Slots of a single wave are empty from each arrival to the end", "[partial][tail]") {
  TailPass pass{.slots = 64, .seconds = 10};
  for (const double arrived : {4.0, 10.0, 7.0}) pass.samples.push_back({.arrived = arrived});
  const EmptySlots empty = EmptyOfTail(pass);
  REQUIRE(empty.slot_seconds == 9);
  REQUIRE(empty.capacity == 30);
  REQUIRE(empty.share() == Approx(0.3));
  pass.samples.push_back({.arrived = 10.5});  // after the end: none, not less than none
  REQUIRE(EmptyOfTail(pass).slot_seconds == 9);
}

TEST_CASE("Of several waves the last arrivals leave slots empty", "[partial][tail]") {
  TailPass pass{.slots = 2, .seconds = 12};
  for (const double arrived : {3.0, 11.0, 6.0, 9.0}) pass.samples.push_back({.arrived = arrived});
  const EmptySlots empty = EmptyOfTail(pass);
  REQUIRE(empty.slot_seconds == 1 + 3);
  REQUIRE(empty.capacity == 24);
}

TEST_CASE("An empty pass has no tail, no cost and no saving", "[partial][tail]") {
  const TailPass pass{.slots = 4, .seconds = 1};
  REQUIRE(EmptyOfTail(pass).slot_seconds == 0);
  REQUIRE(EmptyOfTail(pass).share() == 0);
  REQUIRE(FitEngineCost(pass).step == 0);
  REQUIRE(Predict(pass, 5).saved() == 0);
}

TEST_CASE("The cost of a step and of a token are found again", "[partial][tail]") {
  const std::vector<int64_t> lengths = {3, 40, 7, 12, 5, 5, 90, 2, 31, 8};
  for (const int64_t slots : {4, 16}) {
    const EngineCost cost = FitEngineCost(Pass(lengths, slots, {0.05, 0.002}, 2, 20));
    REQUIRE(cost.step == Approx(0.05));
    REQUIRE(cost.token == Approx(0.002));
  }
}

TEST_CASE("A cost that would be negative is 0, and the other is fitted alone", "[partial][tail]") {
  const std::vector<int64_t> lengths = {3, 40, 7, 12, 5, 5, 90, 2, 31, 8};
  const EngineCost steps = FitEngineCost(Pass(lengths, 16, {0.05, -0.0002}));
  REQUIRE(steps.token == 0);
  REQUIRE(steps.step > 0);
  const EngineCost tokens = FitEngineCost(Pass(lengths, 16, {-0.001, 0.01}));
  REQUIRE(tokens.step == 0);
  REQUIRE(tokens.token > 0);
}

TEST_CASE("Arrivals that tell steps and tokens not apart are charged to tokens",
          "[partial][tail]") {
  const EngineCost cost = FitEngineCost(Pass({10, 10, 10, 10}, 4, {0.2, 0}));
  REQUIRE(cost.step == 0);
  REQUIRE(cost.token == Approx(0.05));
}

TEST_CASE("Equal lengths gain nothing from a cap", "[partial][tail]") {
  for (const int64_t slots : {8, 64}) {
    const TailPass pass = Pass(std::vector<int64_t>(32, 100), slots, {0.01, 0.001}, 4, 30);
    const CapPrediction half = Predict(pass, 50);
    REQUIRE(half.whole_seconds == Approx(pass.seconds));
    REQUIRE(half.rounds == 2);
    // Eight groups each prefill a prompt again, and four prefixes.
    REQUIRE(half.prefilled_again == 8 * (30 + 4 * 50));
    REQUIRE(half.saved() < 0);
    REQUIRE(PredictCap(pass, {.step = 1}, 50, 8).saved() == 0);
  }
}

TEST_CASE("A cap that no sample reaches saves nothing, in one wave or several", "[partial][tail]") {
  for (const int64_t slots : {4, 64}) {
    const TailPass pass = Pass(OneLong(24, 10, 200), slots, {0.01, 0.001}, 3, 30);
    const CapPrediction same = Predict(pass, 200);
    REQUIRE(same.saved() == Approx(0).margin(1e-12));
    REQUIRE(same.rounds == 1);
    REQUIRE(same.prefilled_again == 0);
  }
}

TEST_CASE("With one long sample among many a cap saves almost all of its time", "[partial][tail]") {
  const TailPass pass = Pass(OneLong(64, 20, 1000), 64, {0.01, 0});
  REQUIRE(EmptyOfTail(pass).share() > 0.9);
  const CapPrediction capped = PredictCap(pass, FitEngineCost(pass), 20, 1000);
  // One of 64 groups takes 50 rounds, of 20 steps each.
  REQUIRE(capped.rounds == Approx(1 + 49.0 / 64).epsilon(0.05));
  REQUIRE(capped.saved() > 0.95 * pass.seconds);
  // Halves of it end after 500 steps.
  REQUIRE(Predict(pass, 500).saved() == Approx(0.5 * pass.seconds).epsilon(0.05));
}

TEST_CASE("What is prefilled again is paid for", "[partial][tail]") {
  const TailPass pass = Pass(OneLong(64, 20, 1000), 64, {0.01, 0.0001});
  const EngineCost cost{0.01, 0.0001}, dear{0.01, 0.01};
  const CapPrediction cheap = PredictCap(pass, cost, 250, 8);
  REQUIRE(cheap.saved() > 0);
  REQUIRE(PredictCap(pass, dear, 250, 8).saved() ==
          Approx(cheap.saved() - 0.0099 * cheap.prefilled_again).epsilon(0.05));
}

TEST_CASE("A group is as slow as the longest of its samples", "[partial][tail]") {
  std::vector<int64_t> spread(16, 10), together(16, 10);
  for (size_t i = 0; i < 4; ++i) spread[i * 4] = together[i] = 40;
  const TailPass one_each = Pass(spread, 16, {0.01, 0}, 4);
  const TailPass one_group = Pass(together, 16, {0.01, 0}, 4);
  REQUIRE(Predict(one_each, 20).rounds == 2);
  REQUIRE(Predict(one_group, 20).rounds == Approx(1.25).epsilon(0.03));
  REQUIRE(Predict(one_group, 20).saved() > Predict(one_each, 20).saved());
}

TEST_CASE("Percentiles are by nearest rank", "[partial][tail]") {
  REQUIRE(NearestRank({}, 0.5) == 0);
  REQUIRE(NearestRank({7}, 0.99) == 7);
  REQUIRE(NearestRank({4, 1, 3, 2}, 0.5) == 2);
  REQUIRE(NearestRank({4, 1, 3, 2, 5}, 0.5) == 3);
  std::vector<int64_t> hundred;
  for (int64_t i = 100; i > 0; --i) hundred.push_back(i);
  REQUIRE(NearestRank(hundred, 0.5) == 50);
  REQUIRE(NearestRank(hundred, 0.99) == 99);
  REQUIRE(NearestRank(hundred, 1.0) == 100);
}

}  // namespace tandem
