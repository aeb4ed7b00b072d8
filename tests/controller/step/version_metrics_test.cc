#include <catch2/catch.hpp>

#include "controller/step/step_metrics.h"
#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

// `runs`: weight version and tokens of each segment.
SampleMeta MetaOfRuns(uint64_t id, const std::vector<std::pair<int64_t, int64_t>>& runs) {
  SampleMeta meta;
  meta.sample_id = id;
  meta.prompt_tokens = 5;
  for (const auto& [version, tokens] : runs) {
    meta.response_segments.push_back({.begin = meta.response_tokens,
                                      .length = tokens,
                                      .trained = true,
                                      .weight_version = version});
    meta.response_tokens += tokens;
  }
  if (runs.empty()) return meta;
  meta.weight_version = runs.front().first;
  meta.newest_version = runs.back().first;
  return meta;
}

}  // namespace

TEST_CASE("A batch tells how many samples several versions sampled, and how old tokens are",
          "[version_metrics][partial]") {
  // Two partial samples; one whole of older weights, which is not partial but stale.
  std::vector<SampleMeta> samples = {MetaOfRuns(1, {{3, 10}, {5, 2}, {6, 8}}),
                                     MetaOfRuns(2, {{6, 20}}), MetaOfRuns(3, {{5, 6}, {6, 4}}),
                                     MetaOfRuns(4, {{4, 10}}), MetaOfRuns(5, {})};
  samples[3].response_segments.push_back({10, 7, false, 2});  // a tool's, which nobody trains
  std::map<std::string, double> metrics = {{"partial/stale_tokens", 999}};
  AddVersionMetrics({.version = 6, .issued_tokens_mean = 31.5}, samples, metrics);
  REQUIRE(metrics.at("partial/total_partial_num") == 2);
  REQUIRE(metrics.at("partial/partial_ratio") == 0.4);
  REQUIRE(metrics.at("partial/max_partial_span") == 3);
  REQUIRE(metrics.at("partial/stale_tokens") == 28);
  REQUIRE(metrics.at("partial/stale_tokens_share") == 28.0 / 60);
  REQUIRE(metrics.at("partial/staleness_mean") == (10 * 3 + 2 * 1 + 6 * 1 + 10 * 2) / 28.0);
  REQUIRE(metrics.at("partial/staleness_max") == 3);
  REQUIRE(metrics.at("partial/trained_tokens_mean") == 12);
  REQUIRE(metrics.at("partial/issued_tokens_mean") == 31.5);
}

TEST_CASE("A batch of the step's weights alone has nothing stale", "[version_metrics][partial]") {
  for (const std::vector<SampleMeta>& samples :
       {std::vector<SampleMeta>{}, std::vector<SampleMeta>{MetaOfRuns(1, {{6, 3}})}}) {
    std::map<std::string, double> metrics;
    AddVersionMetrics({.version = 6}, samples, metrics);
    for (const char* name :
         {"total_partial_num", "partial_ratio", "max_partial_span", "stale_tokens",
          "stale_tokens_share", "staleness_mean", "staleness_max"}) {
      INFO(name);
      REQUIRE(metrics.at(std::string("partial/") + name) == 0);
    }
  }
}

TEST_CASE("Only a step with partial rollout has these numbers", "[version_metrics][partial]") {
  testing::FakeRun run(1);
  const PhaseRecorder phases(1, run.pool, run.progress, run.clock);
  const std::vector<SampleMeta> samples = {MetaOfRuns(1, {{3, 10}, {6, 8}})};
  REQUIRE_FALSE(StepMetrics({}, samples, phases).contains("partial/total_partial_num"));
  const auto metrics = StepMetrics({.partial = PartialFacts{.version = 6}}, samples, phases);
  REQUIRE(metrics.at("partial/total_partial_num") == 1);
  REQUIRE(metrics.at("partial/stale_tokens") == 10);
}

}  // namespace tandem
