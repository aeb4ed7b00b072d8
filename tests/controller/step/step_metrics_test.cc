#include "controller/step/step_metrics.h"

#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

SampleMeta MetaOfLengths(uint64_t id, int64_t prompt, int64_t response, int rank) {
  SampleMeta meta;
  meta.sample_id = id;
  meta.prompt_tokens = prompt;
  meta.response_tokens = response;
  meta.rank = rank;
  return meta;
}

}  // namespace

TEST_CASE("The step's sequence lengths are compared before and after balancing", "[step_metrics]") {
  testing::FakeRun run(2);
  PhaseRecorder phases(1, run.pool, run.progress, run.clock);
  const std::vector<SampleMeta> samples = {MetaOfLengths(1, 2, 8, 0), MetaOfLengths(2, 2, 18, 1),
                                           MetaOfLengths(3, 5, 35, 0), MetaOfLengths(4, 5, 25, 1)};
  const auto metrics = StepMetrics({.ranks = 2}, samples, phases);
  REQUIRE(metrics.at("global_seqlen/min") == 30);
  REQUIRE(metrics.at("global_seqlen/max") == 70);
  REQUIRE(metrics.at("global_seqlen/minmax_diff") == 40);
  REQUIRE(metrics.at("global_seqlen/balanced_min") == 50);
  REQUIRE(metrics.at("global_seqlen/balanced_max") == 50);
  REQUIRE(metrics.at("global_seqlen/mean") == 50);
}

TEST_CASE("Percentiles of the response length are lengths that are there", "[step_metrics]") {
  testing::FakeRun run(1);
  PhaseRecorder phases(1, run.pool, run.progress, run.clock);
  std::vector<SampleMeta> samples;
  for (uint64_t i = 1; i <= 200; ++i) {
    samples.push_back(MetaOfLengths(i, 1, static_cast<int64_t>(i * i), 0));
  }
  const auto metrics = StepMetrics({}, samples, phases);
  REQUIRE(metrics.at("response_length/p50") == 100 * 100);
  REQUIRE(metrics.at("response_length/p99") == 198 * 198);
  REQUIRE(metrics.at("response_length/max") == 200 * 200);
  REQUIRE_FALSE(StepMetrics({}, {}, phases).contains("response_length/p50"));
}

TEST_CASE("A rank without samples has no tokens", "[step_metrics]") {
  testing::FakeRun run(1);
  PhaseRecorder phases(1, run.pool, run.progress, run.clock);
  const auto metrics = StepMetrics({.ranks = 3}, {MetaOfLengths(1, 2, 4, 2)}, phases);
  REQUIRE(metrics.at("global_seqlen/balanced_min") == 0);
  REQUIRE(metrics.at("global_seqlen/balanced_max") == 6);
  REQUIRE(metrics.at("global_seqlen/mean") == 2);
}

TEST_CASE("Numbers of mini-batches are averaged into their step's, extremes are kept",
          "[step_metrics]") {
  std::map<std::string, double> step;
  for (const double value : {1.0, 0.5, 2.25, 0.75}) {
    AddMiniBatchMetric(step, "actor/ratio_min", value, 0.25);
    AddMiniBatchMetric(step, "actor/ratio_mean", value, 0.25);
    AddMiniBatchMetric(step, "actor/ratio_max", value, 0.25);
  }
  REQUIRE(step == std::map<std::string, double>{{"actor/ratio_min", 0.5},
                                                {"actor/ratio_mean", 1.125},
                                                {"actor/ratio_max", 2.25}});
}

TEST_CASE("Ratios and clip fraction of the first mini-batch are kept apart from the others",
          "[step_metrics]") {
  StepFacts facts;
  for (const double value : {1.0, 0.5, 3.0}) {
    AddMiniBatchMetrics(facts,
                        {{"actor/ratio_min", value},
                         {"actor/ratio_mean", value},
                         {"actor/ratio_max", value},
                         {"actor/pg_clipfrac", value - 1},
                         {"actor/pg_clipfrac_lower", value},
                         {"actor/loss", value}},
                        1.0 / 3, value == 1.0);
  }
  AverageUpdateMetrics(facts, 3);
  const std::map<std::string, double>& step = facts.trainer;
  REQUIRE(step.size() == 10);
  REQUIRE(step.at("actor/first_pg_clipfrac") == 0);
  REQUIRE(step.at("actor/pg_clipfrac") == Approx(0.5));
  REQUIRE(step.at("actor/first_ratio_min") == 1);
  REQUIRE(step.at("actor/first_ratio_mean") == 1);
  REQUIRE(step.at("actor/first_ratio_max") == 1);
  REQUIRE(step.at("actor/ratio_min") == 0.5);
  REQUIRE(step.at("actor/ratio_max") == 3);
  REQUIRE(step.at("actor/loss") == Approx(1.5));
}

TEST_CASE("Ratios of the first mini-batch are those of the step's weights, where others are there",
          "[step_metrics][partial]") {
  StepFacts facts;
  AddMiniBatchMetrics(facts,
                      {{"actor/ratio_min", 0.5},
                       {"actor/ratio_mean", 0.9},
                       {"actor/ratio_max", 1.5},
                       {"actor/current_ratio_min", 1},
                       {"actor/current_ratio_mean", 1},
                       {"actor/current_ratio_max", 1},
                       {"actor/pg_clipfrac", 0.25},
                       {"partial/stale_tokens", 3}},
                      1, true);
  REQUIRE(facts.trainer.at("actor/first_ratio_min") == 1);
  REQUIRE(facts.trainer.at("actor/first_ratio_mean") == 1);
  REQUIRE(facts.trainer.at("actor/first_ratio_max") == 1);
  REQUIRE(facts.trainer.at("actor/first_pg_clipfrac") == 0.25);
  REQUIRE(facts.trainer.at("actor/ratio_min") == 0.5);

  // All of older weights: there is nothing that must be 1.
  StepFacts old;
  AddMiniBatchMetrics(old,
                      {{"actor/ratio_min", 0.5},
                       {"actor/ratio_mean", 0.9},
                       {"actor/ratio_max", 1.5},
                       {"partial/stale_tokens", 3}},
                      1, true);
  for (const char* name : {"min", "mean", "max"}) {
    REQUIRE_FALSE(old.trainer.contains(std::string("actor/first_ratio_") + name));
  }
}

TEST_CASE("Means over tokens of older weights weigh mini-batches by such tokens",
          "[step_metrics][partial]") {
  const auto numbers = [](double tokens, double mean, double least, double most, double kl) {
    return std::map<std::string, double>{{"partial/stale_tokens", tokens},
                                         {"partial/stale_ratio_mean", mean},
                                         {"partial/stale_ratio_min", least},
                                         {"partial/stale_ratio_max", most},
                                         {"partial/stale_kl", kl}};
  };
  StepFacts facts;
  AddMiniBatchMetrics(facts, {{"actor/loss", 1}}, 0.25, true);
  AddMiniBatchMetrics(facts, numbers(30, 0.7, 0.5, 1.5, 0.1), 0.25, false);
  REQUIRE(facts.trainer.at("partial/stale_ratio_mean") == 0.7);
  REQUIRE(facts.trainer.at("partial/stale_kl") == 0.1);
  AddMiniBatchMetrics(facts, numbers(10, 1.5, 0.25, 1.25, 0.5), 0.25, false);
  AddMiniBatchMetrics(facts, {{"actor/loss", 1}}, 0.25, false);
  AverageUpdateMetrics(facts, 4);
  REQUIRE(facts.trainer.at("partial/stale_tokens") == 40);
  REQUIRE(facts.trainer.at("partial/stale_ratio_mean") == Approx(0.9));
  REQUIRE(facts.trainer.at("partial/stale_kl") == Approx(0.2));
  REQUIRE(facts.trainer.at("partial/stale_ratio_min") == 0.25);
  REQUIRE(facts.trainer.at("partial/stale_ratio_max") == 1.5);
}

TEST_CASE("The mean of a number that some mini-batches lack is over those that have it",
          "[step_metrics]") {
  StepFacts facts;
  const std::map<std::string, double> nothing_kept = {{"actor/loss", 0}};
  for (const double ratio : {1.0, 0.0, 1.5, 0.0}) {
    auto metrics = nothing_kept;
    if (ratio > 0) {
      metrics = {{"actor/ratio_min", ratio},
                 {"actor/ratio_mean", ratio},
                 {"actor/ratio_max", ratio},
                 {"actor/loss", 1}};
    }
    AddMiniBatchMetrics(facts, metrics, 0.25, false);
  }
  AverageUpdateMetrics(facts, 4);
  REQUIRE(facts.trainer == std::map<std::string, double>{{"actor/ratio_min", 1.0},
                                                         {"actor/ratio_mean", 1.25},
                                                         {"actor/ratio_max", 1.5},
                                                         {"actor/loss", 0.5}});
}

TEST_CASE("Rates of generation count what was generated, those of training what is trained on",
          "[step_metrics]") {
  testing::FakeRun run(2);
  PhaseRecorder phases(1, run.pool, run.progress, run.clock);
  for (const auto& [phase, seconds] :
       {std::pair{"generate", 2}, std::pair{"old_log_prob", 3}, std::pair{"train", 5}}) {
    phases.Begin(phase);
    run.clock.Advance(absl::Seconds(seconds));
  }
  phases.End();
  const auto metrics = StepMetrics({.ranks = 2, .devices = 4, .generated_tokens = 100},
                                   {MetaOfLengths(1, 2, 8, 0), MetaOfLengths(2, 2, 18, 1)}, phases);
  REQUIRE(metrics.at("perf/generated_tokens") == 100);
  REQUIRE(metrics.at("perf/generation_tokens_per_second") == 50);
  REQUIRE(metrics.at("timing_per_token_ms/gen") == 20);
  REQUIRE(metrics.at("timing_s/old_log_prob") == 3);
  REQUIRE(metrics.at("perf/total_num_tokens") == 30);
  REQUIRE(metrics.at("perf/training_tokens_per_second") == 6);
  REQUIRE(metrics.at("perf/throughput") == 0.75);
  REQUIRE_FALSE(metrics.contains("timing_s/ref"));
}

TEST_CASE("Rates of rounds are of their own seconds, and a step without a round has none",
          "[step_metrics][partial]") {
  testing::FakeRun run(1);
  PhaseRecorder phases(1, run.pool, run.progress, run.clock);
  phases.Begin("generate");
  run.clock.Advance(absl::Seconds(10));  // with a wait for samples beside training
  phases.End();
  StepFacts facts{.generated_tokens = 100, .generation_seconds = 4};
  const auto metrics = StepMetrics(facts, {}, phases);
  REQUIRE(metrics.at("perf/generation_tokens_per_second") == 25);
  REQUIRE(metrics.at("timing_per_token_ms/gen") == 40);
  REQUIRE(metrics.at("timing_s/gen") == 10);
  facts.generated_tokens = 0;
  facts.generation_seconds = 0;
  const auto none = StepMetrics(facts, {}, phases);
  REQUIRE_FALSE(none.contains("perf/generation_tokens_per_second"));
  REQUIRE_FALSE(none.contains("timing_per_token_ms/gen"));
}

TEST_CASE("Extremes below and above 0 are kept as they are", "[step_metrics]") {
  std::map<std::string, double> step;
  AddMiniBatchMetric(step, "a_max", -3, 0.5);
  AddMiniBatchMetric(step, "a_max", -2, 0.5);
  AddMiniBatchMetric(step, "a_min", 3, 0.5);
  AddMiniBatchMetric(step, "a_min", 4, 0.5);
  REQUIRE(step.at("a_max") == -2);
  REQUIRE(step.at("a_min") == 3);
}

}  // namespace tandem
