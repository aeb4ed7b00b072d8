// Steps whose batch is made of rounds over a rollout buffer of carried groups.
#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "common/process/exit_code.h"
#include "tests/controller/run/partial_loop.h"

namespace tandem {
namespace {

using testing::kTokens;
using testing::PartialRun;
using testing::TrainedOn;

// Rounds of three groups and tokens, so that every step leaves some; checkpoints every `save_freq`
// steps.
void CutInThrees(PartialRun& run, int64_t save_freq) {
  run.options.save_freq = save_freq;
  run.options.partial.cap = 3;
  run.options.partial.groups_per_round = 3;
}

}  // namespace

TEST_CASE("a cap that no response reaches asks the rollouts for the same", "[partial]") {
  testing::FakeRun off(2);
  REQUIRE(off.Run().ok());
  testing::FakeRun on(2);
  on.options.partial = testing::PartialOptionsOf(on.options);
  on.options.partial.cap = kTokens;
  REQUIRE(on.Run().ok());
  REQUIRE(TrainedOn(on.store) == TrainedOn(off.store));
  REQUIRE(on.store.steps.at(2).metrics.at("partial/rounds") == 1);
  REQUIRE(on.store.steps.at(2).metrics.at("partial/total_partial_num") == 0);
}

TEST_CASE("R4: every step has its whole batch, and no group is lost or trained twice",
          "[partial]") {
  for (const int64_t cap : {1, 3, 5}) {
    for (const int64_t issued : {2, 3}) {
      INFO("cap " << cap << ", " << issued << " groups in a round");
      PartialRun run(2);
      run.options.partial.cap = cap;
      run.options.partial.groups_per_round = issued;
      REQUIRE(run.Run().ok());
      std::set<uint64_t> rows;
      for (int64_t step = 1; step <= 5; ++step) {
        run.RequireBatch(step);
        for (const uint64_t row : run.RowsOf(step)) REQUIRE(rows.insert(row).second);
      }
      REQUIRE(rows.size() == 10);
      const BufferCounts left = run.rounds->buffer().Counts();
      const int64_t drawn = run.prompts.Position().row;
      REQUIRE(drawn == 10 + left.groups);
      REQUIRE(run.Metric(5, "partial/carried_groups") +
                  run.Metric(5, "partial/whole_groups_left") ==
              left.groups);
      // Whoever was drawn and is not in the buffer was trained.
      REQUIRE(*rows.rbegin() < static_cast<uint64_t>(drawn));
    }
  }
}

TEST_CASE("tokens of a cut sample keep the weights that sampled them", "[partial]") {
  PartialRun run(1);
  run.options.partial.cap = 3;
  run.options.partial.groups_per_round = 3;
  REQUIRE(run.Run().ok());
  int64_t partial = 0;
  for (const auto& [step, records] : run.store.samples) {
    int64_t of_step = 0;
    for (const SampleRecord& record : records) {
      REQUIRE_FALSE(record.segments.empty());
      for (size_t i = 1; i < record.segments.size(); ++i) {
        REQUIRE(record.segments[i - 1].weight_version < record.segments[i].weight_version);
      }
      REQUIRE(record.segments.back().weight_version < step);
      of_step += record.segments.size() > 1 ? 1 : 0;
    }
    REQUIRE(run.Metric(step, "partial/total_partial_num") == of_step);
    partial += of_step;
  }
  REQUIRE(partial > 0);
}

TEST_CASE("a sample of max_versions weights runs to its end", "[partial]") {
  PartialRun run(1);
  run.options.partial.cap = 1;
  run.options.partial.groups_per_round = 4;
  run.options.partial.max_versions = 2;
  REQUIRE(run.Run().ok());
  int64_t final_samples = 0;
  for (const auto& [step, records] : run.store.samples) {
    for (const SampleRecord& record : records) REQUIRE(record.segments.size() <= 2);
    final_samples += run.Metric(step, "partial/final_samples");
  }
  REQUIRE(final_samples > 0);
}

TEST_CASE("R3: rounds that fill no batch end the run with counts, before any update", "[partial]") {
  PartialRun run(1);
  run.options.partial.cap = 1;
  run.options.partial.max_rounds_without_batch = 4;
  run.responses.length = [](uint64_t) { return kTokens; };
  const absl::Status status = run.Run();
  REQUIRE(absl::IsInvalidArgument(status));
  const std::string message(status.message());
  INFO(message);
  REQUIRE(message.find("after 4 rounds (rollout.partial.max_rounds_without_batch)") !=
          std::string::npos);
  REQUIRE(message.find("8 samples unfinished, 32 tokens so far") != std::string::npos);
  REQUIRE(run.journal.Count("trainer 0 OptimizerStep") == 0);
  REQUIRE(run.journal.Count("rollout 0 Generate") == 8);
  REQUIRE(message.ends_with("Raise rollout.partial.max_tokens_per_round, or the number of rounds"));
}

TEST_CASE("R3: a batch that does not get full names each key that cuts", "[partial]") {
  PartialRun run(1);
  run.options.partial.cap = 1;
  run.options.partial.round_seconds = 3600;
  run.options.partial.max_rounds_without_batch = 2;
  run.responses.length = [](uint64_t) { return kTokens; };
  const std::string message(run.Run().message());
  INFO(message);
  REQUIRE(
      message.ends_with("Raise rollout.partial.max_tokens_per_round and "
                        "rollout.partial.round_seconds, or the number of rounds"));
}

TEST_CASE("a rollout buffer that fills the batch asks the rollouts for nothing", "[partial]") {
  PartialRun run(1);
  run.options.total_steps = 2;
  run.options.partial.groups_per_round = 4;
  run.options.partial.cap = 11;
  REQUIRE(run.Run().ok());
  REQUIRE(run.Metric(1, "partial/whole_groups_left") == 2);
  REQUIRE(run.Metric(2, "partial/rounds") == 0);
  run.RequireBatch(2);
  // By weights that were a step older.
  for (const SampleRecord& record : run.store.samples.at(2)) {
    REQUIRE(record.segments.back().weight_version == 0);
  }
  REQUIRE(run.Metric(2, "partial/staleness_max") == 1);
}

TEST_CASE(
    "a lost trainer takes the rollout buffer back to the checkpoint, a lost rollout changes "
    "nothing",
    "[partial][recovery]") {
  PartialRun undisturbed(2);
  CutInThrees(undisturbed, 2);
  REQUIRE(undisturbed.Run().ok());
  PartialRun trainer(2);
  CutInThrees(trainer, 2);
  trainer.DieAt({WorkerRole::kTrainer, 1}, "ForwardBackward", 3);
  REQUIRE(trainer.Run().ok());
  REQUIRE(TrainedOn(trainer.store) == TrainedOn(undisturbed.store));
  PartialRun rollout(2);
  CutInThrees(rollout, 2);
  rollout.DieAt({WorkerRole::kRollout, 1}, "Generate", 7);
  REQUIRE(rollout.Run().ok());
  REQUIRE(TrainedOn(rollout.store) == TrainedOn(undisturbed.store));
}

TEST_CASE("a checkpoint has the rollout buffer of its step, and the run goes on from it",
          "[partial]") {
  PartialRun whole(1);
  CutInThrees(whole, 1);
  REQUIRE(whole.Run().ok());
  PartialRun first(1);
  CutInThrees(first, 1);
  first.options.total_steps = 2;
  REQUIRE(first.Run().ok());
  REQUIRE(first.rounds->buffer().Counts().carried_samples > 0);
  const std::string checkpoint = first.loop->newest_checkpoint();
  first.options.total_steps = 5;
  REQUIRE(first.Run(checkpoint).ok());
  REQUIRE(TrainedOn(first.store) == TrainedOn(whole.store));
}

TEST_CASE("a rollout buffer that cannot be loaded is told from a run that failed",
          "[partial][recovery]") {
  PartialRun run(1);
  CutInThrees(run, 1);
  run.options.total_steps = 2;
  REQUIRE(run.Run().ok());
  REQUIRE_FALSE(run.loop->failed_loading());
  const std::string checkpoint = run.loop->newest_checkpoint();
  const std::string damaged = checkpoint + "/partial_pool/pool.jsonl";
  std::string bytes = ReadWholeFile(damaged).value();
  bytes.back() = 'x';
  std::ofstream(damaged, std::ios::trunc) << bytes;
  run.options.total_steps = 4;
  const absl::Status status = run.Run(checkpoint);
  REQUIRE_FALSE(status.ok());
  REQUIRE(run.loop->failed_loading());
  REQUIRE(ExitCodeAt(FailedAt::kInputs, status) == kExitDataError);
  REQUIRE(std::string(status.message()).rfind(damaged + ": ", 0) == 0);
}

TEST_CASE("a step that is dropped leaves the rollout buffer of the step before", "[partial]") {
  PartialRun run(1);
  run.options.partial.cap = 3;
  run.options.partial.groups_per_round = 3;
  run.journal.OnCall("trainer 0 ForwardBackward(step 3", [&run] { run.control->StopNow(); });
  const absl::Status stopped = run.Run();
  INFO(stopped.ToString());
  REQUIRE(run.store.steps.count(3) == 0);
  REQUIRE(run.loop->position().finished_steps == 2);
  const BufferCounts left = run.rounds->buffer().Counts();
  REQUIRE(left.groups ==
          run.Metric(2, "partial/carried_groups") + run.Metric(2, "partial/whole_groups_left"));
  REQUIRE(left.carried_samples == run.Metric(2, "partial/carried_samples"));
}

TEST_CASE("until_groups cuts the others where they are, and the journal makes it again",
          "[partial]") {
  const auto configure = [](PartialRun& run) {
    run.options.save_freq = 1;
    run.options.partial.until_groups = 2;
    run.options.partial.groups_per_round = 3;
    // Every third group is held up after a token, the first time.
    const auto seen = std::make_shared<std::set<uint64_t>>();
    run.responses.held_after = [seen](uint64_t id) -> std::optional<int64_t> {
      if ((id >> 24) % 3 != 2 || !seen->insert(id).second) return std::nullopt;
      return 1;
    };
  };
  PartialRun run(1);
  configure(run);
  REQUIRE(run.Run().ok());
  REQUIRE(run.journal.Count("rollout 0 Abort(") > 0);
  for (int64_t step = 1; step <= 5; ++step) run.RequireBatch(step);
  const auto trained = TrainedOn(run.store);
  // Again from step 2, by the journal alone: nobody is held up this time.
  const std::string checkpoint = (run.dir.path() / "checkpoints" / "step_2").string();
  run.responses.held_after = nullptr;
  run.journal.Take();
  REQUIRE(run.Run(checkpoint).ok());
  REQUIRE(run.journal.Count("rollout 0 Abort(") == 0);
  REQUIRE(TrainedOn(run.store) == trained);
}

TEST_CASE("a round ends after round_seconds of the clock", "[partial]") {
  PartialRun run(1);
  run.options.total_steps = 2;
  run.options.partial.round_seconds = 30;
  run.options.partial.groups_per_round = 3;
  run.responses.held_after = [](uint64_t id) -> std::optional<int64_t> {
    return (id >> 24) % 3 == 2 ? std::optional<int64_t>(1) : std::nullopt;
  };
  run.journal.OnCall("rollout 0 Generate(group 2",
                     [&run] { run.clock.Advance(absl::Seconds(31)); });
  REQUIRE(run.Run().ok());
  run.RequireBatch(1);
  // The fourth sample of the group is over after a token.
  REQUIRE(run.Metric(1, "partial/cut_samples") == 3);
  REQUIRE(run.Metric(1, "partial/carried_samples") == 3);
}

TEST_CASE("with overlap the next batch is begun while this one trains", "[partial]") {
  PartialRun run(2);
  run.options.partial.overlap = true;
  run.options.partial.max_staleness = 1;
  REQUIRE(run.Run().ok());
  std::set<uint64_t> rows;
  for (int64_t step = 1; step <= 5; ++step) {
    run.RequireBatch(step);
    for (const uint64_t row : run.RowsOf(step)) REQUIRE(rows.insert(row).second);
    for (const SampleRecord& record : run.store.samples.at(step)) {
      REQUIRE(record.segments.front().weight_version >= step - 2);
    }
  }
  REQUIRE(run.prompts.Position().row == 10 + std::ssize(run.rounds->buffer().state().groups));
  // The batch that trained last counts: one more may be ahead.
  REQUIRE(std::ssize(run.rounds->buffer().state().groups) <= 2);
}

TEST_CASE("no token of a batch is older than max_staleness steps, whatever is long", "[partial]") {
  for (const int64_t staleness : {0, 1, 2}) {
    INFO("max_staleness " << staleness);
    PartialRun run(2);
    run.options.total_steps = 8;
    run.options.partial.overlap = true;
    run.options.partial.max_staleness = staleness;
    run.options.partial.cap = 1;
    run.options.partial.groups_per_round = 8;
    // Beside step 1 nothing is left to generate: it draws all groups that may be ahead, and
    // finishes them.
    if (staleness > 0) run.TrainUntilGeneratedBeside(2);
    REQUIRE(run.Run().ok());
    int64_t oldest = 0;
    for (const auto& [step, records] : run.store.samples) {
      run.RequireBatch(step);
      for (const SampleRecord& record : records) {
        oldest = std::max(oldest, step - 1 - record.segments.front().weight_version);
      }
    }
    // The bound is kept, and reached.
    REQUIRE(oldest == staleness);
    if (staleness > 0) REQUIRE(run.Metric(2, "partial/overlap_rounds") > 0);
  }
}

TEST_CASE("overlap waits once a batch is there", "[partial]") {
  PartialRun run(1);
  run.options.partial.overlap = true;
  run.options.partial.max_staleness = 2;
  run.options.partial.until_groups = 2;
  run.options.partial.groups_per_round = 3;
  REQUIRE(run.Run().ok());
  for (int64_t step = 1; step <= 5; ++step) {
    run.RequireBatch(step);
    // One round is cut as soon as the batch is whole, and no other is begun.
    REQUIRE(run.Metric(step, "partial/rounds") <= 2);
  }
}

TEST_CASE("a disk that is full beside training is waited for, and the journal loses no round",
          "[partial]") {
  PartialRun run(1);
  run.options.partial.overlap = true;
  run.options.partial.max_staleness = 2;
  run.options.partial.until_groups = 2;
  run.options.partial.groups_per_round = 3;
  run.TrainUntilGeneratedBeside(1);
  const auto loop_thread = std::this_thread::get_id();
  std::set<std::string> refused, written;
  bool again = false;  // the newest refused line was tried once more, and refused once more
  run.write_round = [&](int fd, const std::string& line, int64_t end) -> AppendResult {
    const bool beside = std::this_thread::get_id() != loop_thread;
    if (beside) refused.insert(line);
    if (beside || (refused.contains(line) && !std::exchange(again, true))) {
      return {.error = ENOSPC};
    }
    again = false;
    written.insert(line);
    return AppendOrCutBack(fd, line, end, Sync::kYes);
  };
  const absl::Status status = run.Run();
  INFO(status);
  REQUIRE(status.ok());
  for (int64_t step = 1; step <= 5; ++step) run.RequireBatch(step);
  REQUIRE_FALSE(refused.empty());
  REQUIRE(std::includes(written.begin(), written.end(), refused.begin(), refused.end()));
  REQUIRE(run.disk.waited() > absl::ZeroDuration());
  REQUIRE(run.disk.waits_for().empty());
}

TEST_CASE("a rollout that is lost beside training costs one recovery", "[partial][recovery]") {
  PartialRun run(2);
  run.options.partial.cap = 20;
  run.options.partial.overlap = true;
  // Its sleep is what comes first after the rounds beside training.
  run.DieAt({WorkerRole::kRollout, 1}, "Sleep", 1);
  REQUIRE(run.Run().ok());
  REQUIRE(run.budget.spent() == 1);
  for (int64_t step = 1; step <= 5; ++step) run.RequireBatch(step);
}

TEST_CASE("what goes wrong ahead of a step does not undo the step", "[partial]") {
  PartialRun run(1);
  run.options.partial.overlap = true;
  // The rounds beside the training of step 2 find no more data.
  run.prompts.rows = 6;
  const absl::Status status = run.Run();
  INFO(status.ToString());
  REQUIRE_FALSE(status.ok());
  REQUIRE(run.loop->position().finished_steps == run.loop->position().version);
  REQUIRE(run.store.steps.count(run.loop->position().finished_steps) == 1);
  REQUIRE(run.loop->newest_checkpoint().find(
              fmt::format("step_{}", run.loop->position().finished_steps)) != std::string::npos);
}

}  // namespace tandem
