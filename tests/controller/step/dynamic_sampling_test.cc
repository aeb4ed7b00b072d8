#include "controller/step/dynamic_sampling.h"

#include <algorithm>
#include <set>

#include <catch2/catch.hpp>

#include "common/process/exit_code.h"
#include "controller/store/batch_file.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

uint64_t RowOfSample(uint64_t sample_id) { return sample_id >> 24; }

// Steps of two groups of four; the samples of `equal` rows are all worth 0 (even rows) or 1 (odd
// ones), of the others every second one.
void FilterEqualRows(testing::FakeRun& run,
                     const std::set<uint64_t>& equal,
                     int64_t max_batches = 0) {
  run.options.filter_groups = {.enable = true, .metric = "right", .max_batches = max_batches};
  run.reward.value = [equal](uint64_t id) {
    return static_cast<double>(equal.contains(RowOfSample(id)) ? RowOfSample(id) & 1 : id & 1);
  };
}

std::vector<uint64_t> Rows(const testing::MemoryRunStore& store, int64_t step) {
  std::vector<uint64_t> rows;
  for (const SampleRecord& sample : store.samples.at(step)) {
    if (sample.index == 0) rows.push_back(RowOfSample(sample.sample_id));
  }
  return rows;
}

using Rowlist = std::vector<uint64_t>;

}  // namespace

TEST_CASE("Batches are generated until the step has groups that differ", "[dynamic_sampling]") {
  testing::FakeRun run(1);
  FilterEqualRows(run, {0, 1, 2, 3, 4});
  run.options.save_freq = 1;
  run.options.max_prompt_tokens = 3;
  REQUIRE(run.Run().ok());
  // Rows 0 to 4 are dropped; the third batch has row 5, the fourth 6 and, more than wanted, 7.
  REQUIRE(Rows(run.store, 1) == Rowlist{5, 6});
  REQUIRE(Rows(run.store, 2) == Rowlist{8, 9});
  REQUIRE(run.store.samples.at(1).size() == 8);
  REQUIRE(run.store.samples.at(1).front().group == 5);
  REQUIRE(run.store.samples.at(1).back().group == 6);
  REQUIRE(
      CheckpointIndex::ReadState((run.dir.path() / "checkpoints" / "step_1").string())->data.row ==
      8);
  const auto& metrics = run.store.steps.at(1).metrics;
  const std::string prefix = "training/filter_groups/";
  REQUIRE(metrics.at(prefix + "num_gen_batches") == 4);
  REQUIRE(metrics.at(prefix + "evicted_groups") == 5);
  REQUIRE(metrics.at(prefix + "evicted_samples") == 20);
  REQUIRE(metrics.at(prefix + "evicted_value/mean") == Approx(0.4));
  REQUIRE(metrics.at(prefix + "surplus_groups") == 1);
  REQUIRE(metrics.at(prefix + "generated_reward/mean") == Approx((2 * 4 + 3 * 2) / 32.0));
  // Everything else is about what is trained on.
  REQUIRE(metrics.at("critic/score/mean") == 0.5);
  REQUIRE(metrics.at("reward/right/mean") == 0.5);
  REQUIRE(metrics.at("global_seqlen/mean") == 8 * 5);
  REQUIRE(metrics.at("perf/total_num_tokens") == 8 * 5);
  // Of two tokens each, the dropped ones too.
  REQUIRE(metrics.at("perf/generated_tokens") == 8 * 4 * 2);
  // The dropped ones are recorded apart: with their rewards and prompts, without responses.
  std::vector<GroupRecord> evicted = run.store.steps.at(1).groups;
  std::erase_if(evicted, [](const auto& group) { return group.kind != GroupKind::kEvicted; });
  REQUIRE(evicted.size() == 6);
  REQUIRE(run.store.steps.at(1).groups.size() == 8);
  for (const GroupRecord& group : evicted) {
    const auto row = static_cast<uint64_t>(group.group);
    REQUIRE(group.samples == 4);
    REQUIRE(group.reward_mean == (row == 7 ? 0.5 : static_cast<double>(row & 1)));
    REQUIRE((group.reward_std > 0) == (row == 7));
  }
  const auto& dropped = run.store.evicted.at(1);
  REQUIRE(dropped.size() == 24);
  REQUIRE(dropped.front().group == 0);
  REQUIRE(dropped.front().prompt == "prompt");
  REQUIRE(dropped.front().ground_truth == "truth");
  REQUIRE(dropped.front().response.empty());
  REQUIRE(run.store.evicted.at(2).empty());
  const auto& second = run.store.steps.at(2).metrics;
  REQUIRE(second.at(prefix + "num_gen_batches") == 1);
  REQUIRE(second.at(prefix + "evicted_groups") == 0);
  REQUIRE_FALSE(second.contains(prefix + "evicted_value/mean"));
}

TEST_CASE("Rollouts stay awake until the step is full, and trainers see what is kept",
          "[dynamic_sampling]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  FilterEqualRows(run, {0, 1, 2});
  std::vector<uint64_t> assigned;
  run.journal.OnCall("trainer 0 ForwardBackward", [&] {
    const auto ids = run.samples->Assigned(1, -1, 0);
    for (const uint64_t id : *ids) assigned.push_back(RowOfSample(id));
  });
  REQUIRE(run.Run().ok());
  REQUIRE(assigned == Rowlist{3, 3, 3, 3, 4, 4, 4, 4});
  const std::vector<std::string> lines = run.journal.Take();
  std::vector<std::string> of_rollout;
  for (const std::string& line : lines) {
    if (line.starts_with("rollout 0 Generate") || line.starts_with("rollout 0 Sleep")) {
      of_rollout.push_back(line);
    }
  }
  REQUIRE(of_rollout.size() == 7);
  for (size_t group = 0; group < 6; ++group) {
    REQUIRE(of_rollout[group] == fmt::format("rollout 0 Generate(group {}, 4 samples, v0)", group));
  }
  REQUIRE(of_rollout.back().starts_with("rollout 0 Sleep"));
}

TEST_CASE("Without the filter equal groups are trained on", "[dynamic_sampling]") {
  testing::FakeRun run(1);
  FilterEqualRows(run, {0, 1});
  run.options.filter_groups.enable = false;
  REQUIRE(run.Run().ok());
  REQUIRE(Rows(run.store, 1) == Rowlist{0, 1});
  REQUIRE_FALSE(run.store.steps.at(1).metrics.contains("training/filter_groups/num_gen_batches"));
}

TEST_CASE("A step that cannot be filled ends the run with the counts", "[dynamic_sampling]") {
  testing::FakeRun run(1);
  FilterEqualRows(run, {2, 3, 5, 6, 7}, 3);
  const absl::Status status = run.Run();
  REQUIRE(absl::IsOutOfRange(status));
  REQUIRE(ExitCodeAt(FailedAt::kRun, status) == 70);
  REQUIRE(Says(status, "step 2: 3 batches of 2 prompts were generated, and only 1 of the 2 "));
  REQUIRE(Says(status, "5 groups were dropped as all their samples are equal: 3 with 1, 2 "));
  REQUIRE(run.journal.Count("rollout 0 Generate") == 2 + 6);
  // What was learnt before is kept, and the position is that of step 1.
  const auto saved = CheckpointIndex::ReadState(run.loop->newest_checkpoint());
  REQUIRE(saved->step == 1);
  REQUIRE(saved->data.row == 2);
}

TEST_CASE("A step that cannot be filled is saved with all that was drawn for it",
          "[dynamic_sampling]") {
  testing::FakeRun run(1);
  FilterEqualRows(run, {2, 3, 5, 6, 7}, 3);
  const absl::Status status = run.Run();
  REQUIRE(ExitCodeAt(FailedAt::kRun, status) == 70);
  const std::string file = run.dir.path() / "failed_steps" / "step_2" / "step.batch";
  REQUIRE(Says(status, "\nThe step is saved: tandemctl batch inspect " + file +
                           " shows it, and all 20 samples that were dropped"));
  const auto batch = BatchReader::Open(file);
  REQUIRE(batch.ok());
  REQUIRE(Says(status, (*batch)->info().failure));
  REQUIRE((*batch)->info().mini_batch == -1);
  REQUIRE((*batch)->info().metrics.at("training/filter_groups/evicted_groups") == 5);
  // Rows 2 to 7, four samples each; row 4 is what differs, odd rows are all right.
  REQUIRE((*batch)->size() == 24);
  for (size_t i = 0; i < 24; ++i) {
    const SavedSample sample = (*batch)->Read(i);
    const uint64_t row = RowOfSample(sample.sample_id);
    INFO("row " << row);
    REQUIRE(row == 2 + i / 4);
    const double reward = static_cast<double>(row == 4 ? sample.sample_id & 1 : row & 1);
    REQUIRE(sample.score == reward);
    REQUIRE(sample.reward == reward);
    REQUIRE(sample.reward_terms.at("right") == reward);
    REQUIRE(sample.response_tokens() == 2);
    REQUIRE(sample.log_probs.size() == 2);
  }
}

TEST_CASE("A run resumed after refills is the run that was not interrupted", "[dynamic_sampling]") {
  const std::set<uint64_t> equal = {1, 2, 3, 6, 9, 10, 11};
  testing::FakeRun whole(1);
  FilterEqualRows(whole, equal);
  whole.options.total_steps = 3;
  REQUIRE(whole.Run().ok());
  REQUIRE(Rows(whole.store, 1) == Rowlist{0, 4});
  REQUIRE(Rows(whole.store, 2) == Rowlist{7, 8});
  REQUIRE(Rows(whole.store, 3) == Rowlist{12, 13});

  testing::FakeRun halves(1);
  FilterEqualRows(halves, equal);
  halves.options.total_steps = 1;
  REQUIRE(halves.Run().ok());
  halves.options.total_steps = 3;
  const std::string checkpoint = halves.loop->newest_checkpoint();
  halves.prompts = {};
  REQUIRE(halves.Run(checkpoint).ok());

  // A trainer dies in step 2, whose batches are drawn again.
  testing::FakeRun replayed(1);
  FilterEqualRows(replayed, equal);
  replayed.options.total_steps = 3;
  replayed.options.save_freq = 1;
  replayed.DieAt({WorkerRole::kTrainer, 0}, "ForwardBackward", 1);
  REQUIRE(replayed.Run().ok());
  for (int64_t step = 1; step <= 3; ++step) {
    for (const testing::FakeRun* run : {&halves, &replayed}) {
      REQUIRE(Rows(run->store, step) == Rows(whole.store, step));
      REQUIRE(run->store.Advantages(step) == whole.store.Advantages(step));
    }
  }
}

TEST_CASE("A rollout lost while a step is refilled costs nothing but time",
          "[dynamic_sampling][recovery]") {
  const std::set<uint64_t> equal = {0, 1, 3};
  testing::FakeRun undisturbed(2);
  FilterEqualRows(undisturbed, equal);
  REQUIRE(undisturbed.Run().ok());
  for (const int pairs : {1, 2}) {
    testing::FakeRun run(pairs);
    FilterEqualRows(run, equal);
    // Of rollout 0: 2 groups in the first batch of one pair, 1 of two pairs.
    run.DieAt({WorkerRole::kRollout, 0}, "Generate", pairs == 1 ? 3 : 2);
    REQUIRE(run.Run().ok());
    REQUIRE(run.budget.spent() == 1);
    for (int64_t step = 1; step <= 2; ++step) {
      REQUIRE(Rows(run.store, step) == Rows(undisturbed.store, step));
      REQUIRE(run.store.Advantages(step) == undisturbed.store.Advantages(step));
    }
  }
}

TEST_CASE("remax's greedy responses follow their prompts through refills", "[dynamic_sampling]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  run.options.adv_estimator = "remax";
  run.options.greedy_baselines = true;
  FilterEqualRows(run, {0, 1, 3});
  // Greedy responses of even rows are right.
  const auto sampled = run.reward.value;
  run.reward.value = [sampled](uint64_t id) {
    const bool greedy = ((id >> 12) & 0xfffu) == kBaselineEpoch;
    return greedy ? static_cast<double>(1 - (RowOfSample(id) & 1)) : sampled(id);
  };
  REQUIRE(run.Run().ok());
  REQUIRE(Rows(run.store, 1) == Rowlist{2, 4});
  // One for every prompt that was drawn, kept or not, with the batch that drew it.
  for (int64_t group = 0; group < 6; ++group) {
    REQUIRE(run.journal.Count(fmt::format("rollout 0 Generate(group {}, 1 samples, v0)", group)) ==
            1);
  }
  REQUIRE(run.store.Advantages(1) == std::vector<double>{-1, 0, -1, 0, -1, 0, -1, 0});
  REQUIRE(run.store.steps.at(1).metrics.at("perf/generated_tokens") == 6 * (4 + 1) * 2);

  // With the prompts' own: those of dropped groups are right, too, and change nothing.
  testing::FakeRun odd(1);
  odd.options = run.options;
  odd.options.run_dir = odd.dir.path();
  FilterEqualRows(odd, {0, 1, 2});
  const auto of_odd = odd.reward.value;
  odd.reward.value = [of_odd](uint64_t id) {
    const bool greedy = ((id >> 12) & 0xfffu) == kBaselineEpoch;
    return greedy ? static_cast<double>(RowOfSample(id) == 4) : of_odd(id);
  };
  REQUIRE(odd.Run().ok());
  REQUIRE(Rows(odd.store, 1) == Rowlist{3, 4});
  REQUIRE(odd.store.Advantages(1) == std::vector<double>{0, 1, 0, 1, -1, 0, -1, 0});
}

TEST_CASE("A stop in the middle of a refill drops the step", "[dynamic_sampling]") {
  testing::FakeRun run(1);
  FilterEqualRows(run, {2, 3});
  run.Prepare(StartMode::kTrain);
  run.journal.OnCall("rollout 0 Generate(group 3", [&] { run.control->StopNow(); });
  REQUIRE(run.loop->Run("").ok());
  const auto saved = CheckpointIndex::ReadState(run.loop->newest_checkpoint());
  REQUIRE(saved->step == 1);
  REQUIRE(saved->data.row == 2);
}

TEST_CASE("A metric that the reward does not have is an error that names those it has",
          "[dynamic_sampling]") {
  testing::FakeRun run(1);
  FilterEqualRows(run, {});
  run.options.filter_groups.metric = "accuracy";
  const absl::Status status = run.Run();
  REQUIRE(absl::IsInvalidArgument(status));
  REQUIRE(Says(status, "algorithm.filter_groups.metric is \"accuracy\""));
  REQUIRE(Says(status, "it has seq_reward, seq_final_reward, right"));
  REQUIRE(run.journal.Count("trainer 0 ForwardBackward") == 0);
}

TEST_CASE("FilterValue reads any key of the reward", "[dynamic_sampling]") {
  SampleRecord record{.reward = 0.75, .reward_terms = {{"score", 1}, {"length", -0.25}}};
  REQUIRE(*FilterValue(record, "seq_reward") == 0.75);
  REQUIRE(*FilterValue(record, "seq_final_reward") == 0.75);
  REQUIRE(*FilterValue(record, "score") == 1);
  REQUIRE(*FilterValue(record, "length") == -0.25);
  REQUIRE(*FilterValue(record, "acc") == 1);
  record.reward_terms["acc"] = 0;
  REQUIRE(*FilterValue(record, "acc") == 0);
  REQUIRE_FALSE(FilterValue(record, "format").ok());
}

}  // namespace tandem
