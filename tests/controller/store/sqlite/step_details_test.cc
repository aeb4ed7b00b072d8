// What the store keeps of a step beside metrics, phases and groups; and prompts, which steps share.
#include <cmath>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "controller/store/sqlite/database.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

std::string DatabaseIn(const testing::TempDir& dir) { return (dir.path() / "run.db").string(); }

SampleRecord RecordedSample(int64_t step, uint64_t id) {
  return {.sample_id = id, .step = step, .prompt = "What is 'x'?", .response = "y"};
}

}  // namespace

TEST_CASE("Histograms belong to their step, are read on request and are undone with it",
          "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(DatabaseIn(dir)).value();
  StepRecord record{.step = 1};
  Histogram lengths{.low = 1, .high = 9.5};
  lengths.counts[3] = 7;
  record.histograms = {{kLengthHistogram, lengths}, {kRewardHistogram, {.low = -1, .high = -1}}};
  REQUIRE(store->RecordStep(record).ok());
  record.histograms[kLengthHistogram].counts[31] = int64_t{1} << 60;
  REQUIRE(store->RecordStep(record).ok());
  REQUIRE(store->ListSteps({}).value().at(0).histograms.empty());
  const auto read = [&](bool undone) {
    return store->ListSteps({.undone = undone, .details = true}).value().at(0).histograms;
  };
  const auto recorded = read(false);
  REQUIRE(recorded.size() == 2);
  REQUIRE(recorded.at(kLengthHistogram).low == 1);
  REQUIRE(recorded.at(kLengthHistogram).high == 9.5);
  REQUIRE(recorded.at(kLengthHistogram).counts == record.histograms.at(kLengthHistogram).counts);
  REQUIRE(store->UndoAfter(0, 3).ok());
  REQUIRE(store->ListSteps({.details = true}).value().empty());
  REQUIRE(read(true).at(kLengthHistogram).counts[3] == 7);
}

TEST_CASE("Updates, syncs and load of a step are read on request, and undone with it", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(DatabaseIn(dir)).value();
  StepRecord record{.step = 2};
  record.updates = {{.version = 3, .samples = 8, .tokens = 70, .metrics = {{kLoss, 0.25}}},
                    {.version = 4, .samples = 8, .tokens = 50, .metrics = {{kLoss, std::nan("")}}}};
  record.syncs = {{.time_us = 12,
                   .version = 4,
                   .rank = 1,
                   .bytes = 99,
                   .seconds = 0.5,
                   .digest = "ab",
                   .checked = true}};
  record.load = {{.time_us = 7,
                  .rank = 1,
                  .load = {.queued = 1,
                           .running = 2,
                           .waiting = 3,
                           .kv_blocks = 10,
                           .kv_blocks_used = 4,
                           .preemptions = 5,
                           .generated_tokens = 6,
                           .prefill_tokens = 7,
                           .prefix_hit_tokens = 8}}};
  REQUIRE(store->RecordStep(record).ok());
  REQUIRE(store->RecordStep(record).ok());
  REQUIRE(store->ListSteps({}).value().at(0).updates.empty());
  const auto check = [](const StepRecord& step) {
    REQUIRE(step.updates.size() == 2);
    REQUIRE(step.updates[0].version == 3);
    REQUIRE(step.updates[0].tokens == 70);
    REQUIRE(step.updates[0].metrics.at(kLoss) == 0.25);
    REQUIRE(std::isnan(step.updates[1].metrics.at(kLoss)));
    REQUIRE(step.syncs.size() == 1);
    REQUIRE(step.syncs[0].time_us == 12);
    REQUIRE(step.syncs[0].rank == 1);
    REQUIRE(step.syncs[0].bytes == 99);
    REQUIRE(step.syncs[0].digest == "ab");
    REQUIRE(step.syncs[0].checked);
    REQUIRE(step.load.size() == 1);
    REQUIRE(step.load[0].time_us == 7);
    REQUIRE(step.load[0].load.waiting == 3);
    REQUIRE(step.load[0].load.kv_blocks_used == 4);
    REQUIRE(step.load[0].load.prefix_hit_tokens == 8);
  };
  check(store->ListSteps({.details = true}).value().at(0));
  REQUIRE(store->UndoAfter(1, 6).ok());
  REQUIRE(store->ListSteps({.details = true}).value().empty());
  check(store->ListSteps({.undone = true, .details = true}).value().at(0));
}

TEST_CASE("The details of a step count towards a page of steps", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(DatabaseIn(dir)).value();
  for (const int64_t step : {1, 2, 3}) {
    StepRecord record{.step = step};
    for (int rank = 0; rank < 100; ++rank) record.load.push_back({.time_us = step, .rank = rank});
    REQUIRE(store->RecordStep(record).ok());
  }
  const StepQuery plain{.max_bytes = 100 * sizeof(LoadRecord)};
  REQUIRE(store->ListSteps(plain).value().size() == 3);
  StepQuery detailed = plain;
  detailed.details = true;
  const auto page = store->ListSteps(detailed).value();
  REQUIRE(page.size() == 1);
  REQUIRE(page[0].step == 3);
  REQUIRE(page[0].load.size() == 100);
}

TEST_CASE("A prompt is stored once for all its samples, steps and validations", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(DatabaseIn(dir)).value();
  const auto sample = [](uint64_t id, const std::string& prompt, const std::string& truth) {
    return SampleRecord{.sample_id = id,
                        .group = static_cast<int64_t>(id / 10),
                        .prompt = prompt,
                        .response = "r",
                        .ground_truth = truth,
                        .prompt_tokens = 11,
                        .min_log_prob = -0.5,
                        .repetition = 0.25,
                        .arrived_us = 77};
  };
  for (const int64_t step : {1, 2}) {  // as of two epochs
    REQUIRE(store
                ->RecordSamples(step, {sample(10, "a", "1"), sample(11, "a", "1"),
                                       sample(20, "a", "2"), sample(30, "a1", "")})
                .ok());
  }
  REQUIRE(store->RecordEvaluation({.step = 1, .responses = {sample(0, "a", "2")}}).ok());
  auto db = SqliteDatabase::Open(DatabaseIn(dir)).value();
  auto count = db->Prepare("SELECT COUNT(*), SUM(LENGTH(text)) FROM prompts").value();
  REQUIRE(count.Step().value());
  REQUIRE(count.Int(0) == 3);
  REQUIRE(count.Int(1) == 4);
  const auto page = store->ListSamples({.step = 2}).value();
  REQUIRE(page.samples[0].prompt_id == page.samples[1].prompt_id);
  REQUIRE(page.samples[0].prompt_id != page.samples[2].prompt_id);
  REQUIRE(page.samples[2].prompt == "a");
  REQUIRE(page.samples[2].ground_truth == "2");
  REQUIRE(page.samples[3].prompt == "a1");
  REQUIRE(page.samples[3].prompt_tokens == 11);
  REQUIRE(page.samples[3].min_log_prob == -0.5);
  REQUIRE(page.samples[3].repetition == 0.25);
  REQUIRE(page.samples[3].arrived_us == 77);
  const auto of_prompt = store->ListSamples({.prompt_id = page.samples[0].prompt_id}).value();
  REQUIRE(of_prompt.total == 4);
  REQUIRE(of_prompt.samples[0].step == 1);
  REQUIRE(of_prompt.samples[3].step == 2);
  REQUIRE(store->ListSamples({.step = 2, .prompt_id = page.samples[0].prompt_id}).value().total ==
          2);
  const auto validation = store->ListSamples({.step = 1, .evaluation = true}).value();
  REQUIRE(validation.samples.at(0).prompt_id == page.samples[2].prompt_id);
  REQUIRE(validation.samples[0].response == "r");
  REQUIRE(validation.samples[0].min_log_prob == -0.5);
}

TEST_CASE("Responses of a validation are replaced, and undone with it", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(DatabaseIn(dir)).value();
  const auto validate = [&](int64_t step, const std::string& response) {
    REQUIRE(store
                ->RecordEvaluation({.step = step,
                                    .responses = {{.sample_id = 7, .response = response},
                                                  {.sample_id = 8, .index = 1, .reward = 2}}})
                .ok());
  };
  validate(0, "first");
  validate(0, "again");
  validate(2, "later");
  const auto page = store->ListSamples({.step = 0, .evaluation = true}).value();
  REQUIRE(page.total == 2);
  REQUIRE(page.samples[0].response == "again");
  REQUIRE(page.samples[1].reward == 2);
  REQUIRE(page.groups.empty());
  REQUIRE(store->UndoAfter(0, 4).ok());
  REQUIRE(store->ListSamples({.step = 2, .evaluation = true}).value().total == 0);
  const auto undone = store->ListSamples({.step = 2, .undone_by = 4, .evaluation = true}).value();
  REQUIRE(undone.samples.at(0).response == "later");
}

TEST_CASE("Samples that dynamic sampling dropped are apart, with their prompts", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(DatabaseIn(dir), 1).value();
  SampleRecord dropped = RecordedSample(1, 9);
  dropped.evicted = true;
  REQUIRE(store->RecordSamples(1, {RecordedSample(1, 3), dropped}).ok());
  REQUIRE(store->ListSamples({.step = 1}).value().total == 1);
  const auto page = store->ListSamples({.step = 1, .evicted = true}).value();
  REQUIRE(page.total == 1);
  REQUIRE(page.samples[0].sample_id == 9);
  REQUIRE(page.samples[0].evicted);
  REQUIRE(page.samples[0].prompt == dropped.prompt);
  REQUIRE(page.samples[0].response.empty());
  REQUIRE(page.samples[0].texts_kept);
  SampleRecord other = RecordedSample(2, 4);
  other.prompt = "another";
  REQUIRE(store->RecordSamples(2, {other}).ok());
  REQUIRE_FALSE(store->ListSamples({.step = 1, .evicted = true}).value().samples[0].texts_kept);
}

TEST_CASE("A prompt's texts stay as long as a step that keeps its texts has it", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(DatabaseIn(dir), 2).value();
  const auto record = [&](int64_t step, const std::string& prompt) {
    SampleRecord sample = RecordedSample(step, 1);
    sample.prompt = prompt;
    REQUIRE(store->RecordSamples(step, {sample}).ok());
  };
  const auto texts = [&] {
    auto db = SqliteDatabase::Open(DatabaseIn(dir)).value();
    auto select = db->Prepare("SELECT text FROM prompts ORDER BY id").value();
    std::vector<std::string> list;
    while (select.Step().value()) list.push_back(select.IsNull(0) ? "-" : select.Text(0));
    return list;
  };
  record(1, "a");
  REQUIRE(store->RecordEvaluation({.step = 1, .responses = {{.prompt = "v"}}}).ok());
  record(2, "b");
  record(3, "a");
  REQUIRE(texts() == std::vector<std::string>{"a", "-", "b"});  // step 3 needs "a"
  REQUIRE(store->ListSamples({.step = 1}).value().samples[0].prompt.empty());
  REQUIRE_FALSE(store->ListSamples({.step = 1, .evaluation = true}).value().samples[0].texts_kept);
  record(4, "c");
  REQUIRE(texts() == std::vector<std::string>{"a", "-", "-", "c"});
  record(5, "d");
  REQUIRE(texts() == std::vector<std::string>{"-", "-", "-", "c", "d"});
  // It keeps its number when its turn comes again.
  record(6, "a");
  REQUIRE(texts() == std::vector<std::string>{"a", "-", "-", "-", "d"});
  REQUIRE(store->ListSamples({.step = 6}).value().samples[0].prompt_id == 1);
  REQUIRE(store->ListSamples({.step = 6}).value().samples[0].prompt == "a");
}

}  // namespace tandem
