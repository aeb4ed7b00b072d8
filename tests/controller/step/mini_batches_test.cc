#include "controller/step/mini_batches.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <catch2/catch.hpp>

#include "controller/balance/rank_assignment.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

void Fill(SampleStore& store, int64_t groups, int64_t samples) {
  REQUIRE(store.BeginStep(1).ok());
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = 0; i < samples; ++i) {
      Sample sample;
      sample.sample_id = MakeSampleId(static_cast<uint64_t>(g), 0, static_cast<uint64_t>(i));
      sample.group = g;
      sample.tokens.assign(static_cast<size_t>(2 + g + i), 1);
      sample.prompt_tokens = 1;
      sample.log_probs.assign(static_cast<size_t>(1 + g + i), -1.0f);
      sample.versions.assign(static_cast<size_t>(1 + g + i), 0);
      REQUIRE(store.Put(sample, 0).ok());
    }
  }
}

std::vector<int64_t> BatchOfGroups(const SampleStore& store) {
  std::vector<int64_t> batches;
  for (const SampleMeta& meta : store.Metas()) {
    if (meta.index == 0 && meta.sample_id % 4096 == 0) batches.push_back(meta.mini_batch);
  }
  return batches;
}

}  // namespace

TEST_CASE("AssignSamplesToRanks balances by length and keeps the order of ids", "[partition]") {
  // As verl's [5,9,3,8,7,1,2,6] over two: 41 tokens, best split 20 and 21.
  const std::vector<int64_t> lengths = {5, 9, 3, 8, 7, 1, 2, 6};
  std::vector<SampleLength> samples;
  for (size_t i = 0; i < lengths.size(); ++i)
    samples.push_back({i, lengths[i], static_cast<int64_t>(i), 0});
  const auto parts = AssignSamplesToRanks(samples, 2, Balance::kByLength);
  std::set<uint64_t> all;
  for (const auto& part : parts) {
    REQUIRE(std::is_sorted(part.begin(), part.end()));
    int64_t tokens = 0;
    for (const uint64_t id : part) tokens += lengths[id];
    REQUIRE(tokens >= 19);
    REQUIRE(tokens <= 22);
    all.insert(part.begin(), part.end());
  }
  REQUIRE(all.size() == 8);
  std::reverse(samples.begin(), samples.end());
  REQUIRE(AssignSamplesToRanks(samples, 2, Balance::kByLength) == parts);
}

// `groups` groups of `n` samples with prompts of 30 and responses of 10 to 13 tokens.
std::vector<SampleLength> EvenGroups(int64_t groups, int64_t n) {
  std::vector<SampleLength> samples;
  for (int64_t i = 0; i < groups * n; ++i) {
    samples.push_back({static_cast<uint64_t>(i), 40 + i % 4, i / n, 30});
  }
  return samples;
}

// On how many ranks each group is, in all.
size_t Places(const std::vector<SampleLength>& samples,
              const std::vector<std::vector<uint64_t>>& parts) {
  std::set<std::pair<size_t, int64_t>> places;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    for (const uint64_t id : parts[rank]) places.insert({rank, samples[id].group});
  }
  return places.size();
}

TEST_CASE("AssignSamplesToRanks keeps groups together where that balances", "[partition]") {
  const std::vector<SampleLength> samples = EvenGroups(8, 8);
  const auto parts = AssignSamplesToRanks(samples, 2, Balance::kByLength);
  REQUIRE(parts[0].size() == 32);
  REQUIRE(parts[1].size() == 32);
  REQUIRE(Places(samples, parts) == 8);
}

TEST_CASE("AssignSamplesToRanks splits no more groups than balance needs", "[partition]") {
  const std::vector<SampleLength> three = EvenGroups(3, 8);
  const auto parts = AssignSamplesToRanks(three, 2, Balance::kByLength);
  REQUIRE(parts[0].size() == 12);
  REQUIRE(parts[1].size() == 12);
  REQUIRE(Places(three, parts) == 4);
}

TEST_CASE("AssignSamplesToRanks splits groups when there are fewer than ranks", "[partition]") {
  const auto parts = AssignSamplesToRanks(EvenGroups(1, 8), 4, Balance::kByLength);
  for (const auto& part : parts) REQUIRE(part.size() == 2);
}

TEST_CASE("AssignSamplesToRanks leaves ranks empty when samples run out", "[partition]") {
  const auto parts = AssignSamplesToRanks({{7, 3, 0, 1}}, 3, Balance::kByLength);
  REQUIRE(parts[0] == std::vector<uint64_t>{7});
  REQUIRE(parts[1].empty());
  REQUIRE(parts[2].empty());
  REQUIRE(AssignSamplesToRanks({{1, 1}, {2, 1}, {3, 1}}, 2, Balance::kInOrder) ==
          std::vector<std::vector<uint64_t>>{{1, 2}, {3}});
}

TEST_CASE("PlanMiniBatches deals whole groups, the last batch may be smaller", "[mini_batches]") {
  testing::TempDir dir;
  const auto store = *SampleStore::Open(dir.path(), 0);
  Fill(*store, 5, 3);
  TrainOptions options;
  options.mini_batch_prompts = 2;
  const auto plan = PlanMiniBatches(options, 1, 0, 2, *store);
  REQUIRE(plan.size() == 3);
  REQUIRE(plan[0].samples == 6);
  REQUIRE(plan[2].samples == 3);
  REQUIRE(plan[0].trained_tokens == 1 + 2 + 3 + 2 + 3 + 4);
  REQUIRE(BatchOfGroups(*store) == std::vector<int64_t>{0, 0, 1, 1, 2});
}

TEST_CASE("PlanMiniBatches shuffles by seed, step and epoch alone", "[mini_batches]") {
  testing::TempDir dir;
  const auto store = *SampleStore::Open(dir.path(), 0);
  Fill(*store, 16, 1);
  TrainOptions options;
  options.mini_batch_prompts = 4;
  options.shuffle = true;
  PlanMiniBatches(options, 1, 0, 1, *store);
  const auto first = BatchOfGroups(*store);
  PlanMiniBatches(options, 1, 1, 1, *store);
  REQUIRE(BatchOfGroups(*store) != first);
  PlanMiniBatches(options, 1, 0, 1, *store);
  REQUIRE(BatchOfGroups(*store) == first);
}

// Groups of one to five samples; every second sample has a token that the mask takes away.
std::map<uint64_t, int64_t> FillUnequal(SampleStore& store, int64_t groups) {
  std::map<uint64_t, int64_t> trained;
  REQUIRE(store.BeginStep(1).ok());
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = 0; i < 1 + g * 7 % 5; ++i) {
      const auto responses = static_cast<size_t>(1 + (g * 13 + i * 5) % 17);
      Sample sample;
      sample.sample_id = MakeSampleId(static_cast<uint64_t>(g), 0, static_cast<uint64_t>(i));
      sample.group = g;
      sample.tokens.assign(3 + responses, 1);
      sample.prompt_tokens = 3;
      sample.log_probs.assign(responses, -1.0f);
      sample.versions.assign(responses, 0);
      REQUIRE(store.Put(sample, 0).ok());
      std::vector<float> mask(responses, 1.0f);
      if (i % 2 == 1) {
        mask.front() = 0.0f;
        REQUIRE(store.PutArray(1, TokenArray::kMask, sample.sample_id, mask).ok());
      }
      trained[sample.sample_id] = static_cast<int64_t>(responses) - (i % 2 == 1 ? 1 : 0);
    }
  }
  return trained;
}

TEST_CASE("Every epoch's plan has each sample once, groups whole, and its own denominators",
          "[mini_batches]") {
  testing::TempDir dir;
  const auto store = *SampleStore::Open(dir.path(), 0);
  const std::map<uint64_t, int64_t> trained = FillUnequal(*store, 11);
  for (const bool shuffle : {false, true}) {
    for (const int ranks : {1, 2, 5}) {
      TrainOptions options;
      options.mini_batch_prompts = 3;
      options.shuffle = shuffle;
      options.epochs = 3;
      for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
        const auto plan = PlanMiniBatches(options, 1, epoch, ranks, *store);
        REQUIRE(plan.size() == 4);
        std::set<uint64_t> seen;
        std::map<int64_t, int64_t> batch_of_group;
        for (const MiniBatch& mini : plan) {
          int64_t samples = 0, tokens = 0;
          for (int rank = 0; rank < ranks; ++rank) {
            const auto assigned = store->Assigned(1, mini.index, rank);
            REQUIRE(assigned.ok());
            for (const uint64_t id : *assigned) {
              REQUIRE(seen.insert(id).second);
              const auto group = static_cast<int64_t>(id >> 24);
              REQUIRE(batch_of_group.emplace(group, mini.index).first->second == mini.index);
              ++samples;
              tokens += trained.at(id);
            }
          }
          REQUIRE(mini.samples == samples);
          REQUIRE(mini.trained_tokens == tokens);
        }
        REQUIRE(seen.size() == trained.size());
        REQUIRE(batch_of_group.size() == 11);
      }
    }
  }
}

TEST_CASE("The number of ranks changes neither mini-batches nor denominators", "[mini_batches]") {
  testing::TempDir dir;
  const auto store = *SampleStore::Open(dir.path(), 0);
  FillUnequal(*store, 9);
  TrainOptions options;
  options.mini_batch_prompts = 4;
  options.shuffle = true;
  const auto one = PlanMiniBatches(options, 1, 0, 1, *store);
  const auto groups = BatchOfGroups(*store);
  const auto six = PlanMiniBatches(options, 1, 0, 6, *store);
  REQUIRE(BatchOfGroups(*store) == groups);
  for (size_t i = 0; i < one.size(); ++i) {
    REQUIRE(six[i].samples == one[i].samples);
    REQUIRE(six[i].trained_tokens == one[i].trained_tokens);
  }
}

TEST_CASE("Mini-batches without a token to train on are counted apart", "[mini_batches]") {
  testing::TempDir dir;
  auto store = *SampleStore::Open(dir.path() / "samples", 0);
  Fill(*store, 3, 2);
  TrainOptions options;
  options.mini_batch_prompts = 1;
  options.epochs = 2;
  REQUIRE(CountUpdates(options, 1, 1, *store).updates == 6);
  for (const SampleMeta& meta : store->Metas()) {
    if (meta.group != 1) continue;
    const std::vector<float> none(static_cast<size_t>(meta.response_tokens), 0.0f);
    REQUIRE(store->PutArray(1, TokenArray::kMask, meta.sample_id, none).ok());
  }
  const UpdateCount count = CountUpdates(options, 1, 1, *store);
  REQUIRE(count.updates == 4);
  REQUIRE(count.left_out == 2);
}

}  // namespace tandem
