#include <catch2/catch.hpp>

#include "controller/partial_rollout/tail_model.h"
#include "controller/store/run_store.h"
#include "tests/fakes/fake_clock.h"

namespace tandem {
namespace {

Sample MakeTailSample(int64_t group, uint64_t index, int64_t tokens) {
  Sample sample;
  sample.sample_id = MakeSampleId(static_cast<uint64_t>(group), 0, index);
  sample.group = group;
  sample.prompt_tokens = 3;
  sample.tokens.resize(static_cast<size_t>(3 + tokens));
  return sample;
}

const TailOptions kOptions{.slots = 4, .caps = {{"split_2", 50}, {"split_4", 25}}};

}  // namespace

TEST_CASE("The recorder takes times from the begin of its pass", "[partial][tail_recorder]") {
  testing::FakeClock clock;
  TailRecorder recorder(clock);
  clock.Advance(absl::Seconds(100));
  recorder.Begin();
  // The longest first of all in the order of issue, last to come.
  for (const auto& [group, tokens] : {std::pair{1, 10}, std::pair{2, 10}, std::pair{0, 100}}) {
    clock.Advance(absl::Seconds(group == 0 ? 9 : 0) + absl::Milliseconds(500));
    recorder.Arrived(MakeTailSample(group, 0, tokens));
  }
  recorder.End();
  clock.Advance(absl::Seconds(1000));
  std::map<std::string, double> metrics;
  recorder.Report(kOptions, metrics);
  REQUIRE(metrics.at(kTailEmptySlotSeconds) == Approx(10 + 9.5));
  REQUIRE(metrics.at(kTailShare) == Approx(19.5 / 31.5));
  REQUIRE(metrics.at("partial/predicted_saving_s/split_2") > 3);
  REQUIRE(metrics.at("partial/predicted_saving_s/split_4") >
          metrics.at("partial/predicted_saving_s/split_2"));
}

TEST_CASE("Samples are replayed in the order of issue, whatever the order of arrival",
          "[partial][tail_recorder]") {
  const std::vector<Sample> samples = {MakeTailSample(0, 0, 40), MakeTailSample(0, 1, 4),
                                       MakeTailSample(1, 0, 7), MakeTailSample(1, 1, 90)};
  const auto report = [&](const std::vector<size_t>& order) {
    testing::FakeClock clock;
    TailRecorder recorder(clock);
    recorder.Begin();
    clock.Advance(absl::Seconds(2));
    for (const size_t i : order) recorder.Arrived(samples[i]);
    recorder.End();
    std::map<std::string, double> metrics;
    recorder.Report({.slots = 1, .caps = kOptions.caps}, metrics);
    return metrics;
  };
  REQUIRE(report({0, 1, 2, 3}) == report({3, 1, 0, 2}));
}

TEST_CASE("Passes of one step are added up", "[partial][tail_recorder]") {
  testing::FakeClock clock;
  TailRecorder recorder(clock);
  for (int pass = 0; pass < 2; ++pass) {
    recorder.Begin();
    for (int64_t group = 0; group < 2; ++group) {
      clock.Advance(absl::Seconds(5));
      recorder.Arrived(MakeTailSample(group, 0, 10));
    }
    recorder.End();
    clock.Advance(absl::Seconds(7));  // between them
  }
  std::map<std::string, double> metrics;
  recorder.Report({.slots = 4}, metrics);
  REQUIRE(metrics ==
          std::map<std::string, double>{{kTailEmptySlotSeconds, 10}, {kTailShare, 0.25}});
}

TEST_CASE("A step that generated nothing reports no tail", "[partial][tail_recorder]") {
  testing::FakeClock clock;
  TailRecorder recorder(clock);
  recorder.Begin();
  recorder.End();
  std::map<std::string, double> metrics;
  recorder.Report(kOptions, metrics);
  REQUIRE(metrics.empty());
}

}  // namespace tandem
