#include "controller/store/batch_stats.h"

#include <catch2/catch.hpp>

#include "tests/controller/store/some_batch.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

BatchStats StatsOf(const std::vector<SavedSample>& samples) {
  const testing::TempDir dir;
  testing::WriteBatch(dir.path() / "b", {}, samples);
  const auto batch = BatchReader::Open(dir.path() / "b");
  REQUIRE(batch.ok());
  return SummarizeBatch(**batch);
}

const FieldStats* Find(const BatchStats& stats, const std::string& name) {
  for (const FieldStats& field : stats.fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

const FieldStats& Field(const BatchStats& stats, const std::string& name) {
  INFO(name);
  REQUIRE(Find(stats, name) != nullptr);
  return *Find(stats, name);
}

}  // namespace

TEST_CASE("A summary counts samples, tokens, masks and reasons", "[batch_file]") {
  const BatchStats stats = StatsOf(testing::SomeSamples());
  REQUIRE(stats.samples == 4);
  REQUIRE(stats.prompt_tokens == 12);
  REQUIRE(stats.response_tokens == 11);
  REQUIRE(stats.trained_tokens == 8);
  REQUIRE(stats.off_support == 2);
  REQUIRE(stats.finish_reasons == std::map<std::string, int64_t>{{"length", 2}, {"stop", 2}});
  REQUIRE(stats.groups.size() == 2);
  REQUIRE(stats.groups[0].samples == 2);
  REQUIRE(stats.groups[0].response_tokens == 7);
  REQUIRE(stats.groups[0].reward_min == 0);
  REQUIRE(stats.groups[0].reward_mean == 0.25);
  REQUIRE(stats.groups[0].reward_max == 0.5);
}

TEST_CASE("A summary has the range of every field", "[batch_file]") {
  const BatchStats stats = StatsOf(testing::SomeSamples());
  const FieldStats& lengths = Field(stats, "response_tokens");
  REQUIRE_FALSE(lengths.per_token);
  REQUIRE(lengths.min == 0);
  REQUIRE(lengths.mean == 2.75);
  REQUIRE(lengths.max == 4);
  const FieldStats& advantages = Field(stats, "advantages");
  REQUIRE(advantages.per_token);
  REQUIRE(advantages.values == 11);
  REQUIRE(advantages.samples == 3);  // one has no tokens
  REQUIRE(advantages.min == -1);
  REQUIRE(advantages.mean == Approx((2.0 + 0.0 + 2.0) / 11));
  REQUIRE(advantages.max == 2);
  REQUIRE(Field(stats, "mask").mean == Approx(8.0 / 11));
  REQUIRE(Field(stats, "score").max == 1);
  REQUIRE(Field(stats, "reward").max == 0.5);
  REQUIRE(Field(stats, "tokens").max == 103);
  REQUIRE(Field(stats, "ref_log_probs").max == -1);
  REQUIRE(Field(stats, "log_probs").max == -0.5);
}

TEST_CASE("Arrays that no sample has are not fields", "[batch_file]") {
  std::vector<SavedSample> samples = {testing::SomeSample(2, 0, 3)};
  samples[0].is_weights.clear();
  samples[0].old_log_probs.clear();
  const BatchStats stats = StatsOf(samples);
  REQUIRE(Find(stats, "is_weights") == nullptr);
  REQUIRE(Find(stats, "mask") != nullptr);
  REQUIRE_FALSE(stats.ratio.has_value());
}

TEST_CASE("The worst ratio is the farthest from 1, up or down", "[batch_file]") {
  std::vector<SavedSample> samples = {testing::SomeSample(2, 0, 8), testing::SomeSample(3, 0, 8)};
  samples[0].old_log_probs[2] += 0.5f;
  samples[1].old_log_probs[0] -= 0.75f;
  const BatchStats stats = StatsOf(samples);
  REQUIRE(stats.ratio.has_value());
  REQUIRE(stats.ratio->tokens == 16);
  REQUIRE(stats.ratio->exactly_one == 14);
  REQUIRE(stats.ratio->max == Approx(std::exp(0.5)).epsilon(1e-6));
  REQUIRE(stats.ratio->min == Approx(std::exp(-0.75)).epsilon(1e-6));
  REQUIRE(stats.ratio->mean == Approx((14 + std::exp(0.5) + std::exp(-0.75)) / 16).epsilon(1e-6));
  REQUIRE(stats.ratio->worst.sample_id == 3);
  REQUIRE(stats.ratio->worst.position == 0);
  REQUIRE(stats.ratio->worst.value == stats.ratio->min);
  REQUIRE(stats.ratio->sequence_position == 3);
  REQUIRE(stats.ratio->old_log_prob == -0.5);
  REQUIRE(stats.ratio->old == std::string("rollout"));
  REQUIRE(stats.ratio->trainer == -1.25);
  REQUIRE(stats.ratio->masked);
  REQUIRE(stats.ratio->weight_version == 7);
  REQUIRE(stats.ratio->before == std::vector<int32_t>{1, 2, 3});
  REQUIRE(stats.ratio->token == 0);
  REQUIRE(stats.ratio->after == std::vector<int32_t>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("Ratios of tokens of older weights stand apart", "[batch_file][partial]") {
  std::vector<SavedSample> samples = {testing::SomeSample(2, 0, 6), testing::SomeSample(3, 0, 4)};
  samples[0].versions = {5, 5, 6, 7, 7, 7};
  for (size_t i = 0; i < 3; ++i) samples[0].old_log_probs[i] += 0.25f;
  samples[0].old_log_probs[1] += 0.5f;
  const auto stats_of = [&] {
    const testing::TempDir dir;
    testing::WriteBatch(dir.path() / "b", testing::SomeInfo(), samples);
    return SummarizeBatch(**BatchReader::Open(dir.path() / "b"));
  };
  BatchStats stats = stats_of();
  REQUIRE(stats.version_tokens == std::map<int64_t, int64_t>{{5, 2}, {6, 1}, {7, 7}});
  REQUIRE(stats.mixed_samples == 1);
  REQUIRE(stats.ratio->tokens == 7);
  REQUIRE(stats.ratio->exactly_one == 7);
  REQUIRE(stats.stale_ratio->tokens == 3);
  REQUIRE(stats.stale_ratio->exactly_one == 0);
  REQUIRE(stats.stale_ratio->min == Approx(std::exp(0.25)));
  REQUIRE(stats.stale_ratio->max == Approx(std::exp(0.75)));
  REQUIRE(stats.stale_ratio->worst.position == 1);
  REQUIRE(stats.stale_ratio->weight_version == 5);

  // Against recomputed ones, which are of the step's weights, every token counts.
  for (SavedSample& sample : samples) sample.training_log_probs = sample.old_log_probs;
  stats = stats_of();
  REQUIRE(stats.ratio->tokens == 10);
  REQUIRE(stats.ratio->exactly_one == 10);
  REQUIRE_FALSE(stats.stale_ratio.has_value());
}

TEST_CASE("Log-probs of a training pass are compared with what the pass was compared with",
          "[batch_file]") {
  std::vector<SavedSample> samples = {testing::SomeSample(2, 0, 8), testing::SomeSample(3, 0, 8)};
  samples[1].training_log_probs = samples[1].old_log_probs;
  samples[1].training_log_probs[4] += 0.25f;
  samples[0].log_probs[1] -= 3;  // a sample of a trainer that saw no difference
  samples[1].log_probs[2] -= 2;
  BatchStats stats = StatsOf(samples);
  REQUIRE(stats.ratio->tokens == 8);
  REQUIRE(stats.ratio->exactly_one == 7);
  REQUIRE(stats.ratio->worst.position == 4);
  REQUIRE(stats.ratio->worst.value == Approx(std::exp(0.25)));
  REQUIRE(stats.ratio->old == std::string("recomputed"));
  REQUIRE(stats.ratio->old_log_prob == -4.5);
  REQUIRE(stats.ratio->trainer == -4.25);
  for (SavedSample& sample : samples) sample.old_log_probs.clear();
  stats = StatsOf(samples);
  REQUIRE(stats.ratio->old == std::string("rollout"));
  REQUIRE(stats.ratio->exactly_one == 6);
  REQUIRE(stats.ratio->worst.position == 2);
}

TEST_CASE("Equal log-probs have a ratio of exactly 1", "[batch_file]") {
  const BatchStats stats = StatsOf(testing::SomeSamples());
  REQUIRE(stats.ratio->exactly_one == 11);
  REQUIRE(stats.ratio->min == 1);
  REQUIRE(stats.ratio->mean == 1);
  REQUIRE(stats.ratio->max == 1);
}

TEST_CASE("Values that are not finite are named and kept out of the ranges", "[batch_file]") {
  std::vector<SavedSample> samples = {testing::SomeSample(2, 0, 8), testing::SomeSample(3, 0, 8)};
  samples[0].old_log_probs[1] = NAN;
  samples[1].old_log_probs[7] = -INFINITY;
  samples[1].reward = NAN;
  samples[1].is_weights.assign(8, NAN);
  const BatchStats stats = StatsOf(samples);
  const FieldStats& old = Field(stats, "old_log_probs");
  REQUIRE(old.nan == 1);
  REQUIRE(old.infinite == 1);
  REQUIRE(old.min == -7.5);
  REQUIRE(old.not_finite.size() == 2);
  REQUIRE(old.not_finite[0].sample_id == 2);
  REQUIRE(old.not_finite[0].position == 1);
  REQUIRE(old.not_finite[1].value == -INFINITY);
  REQUIRE(Field(stats, "reward").not_finite[0].position == -1);
  REQUIRE(Field(stats, "is_weights").nan == 8);
  REQUIRE(Field(stats, "is_weights").not_finite.size() == 5);
  REQUIRE(Field(stats, "is_weights").mean == 1.5);
  REQUIRE(stats.ratio->tokens == 14);
  REQUIRE(stats.ratio->max == 1);
}

}  // namespace tandem
