// What the train loop relies on in every generation mode.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/controller/run/partial_loop.h"

namespace tandem {
namespace {

using testing::PartialRun;

// Response tokens by sample id.
using TokensById = std::map<uint64_t, std::vector<int32_t>>;

struct ModeRun : PartialRun {
  explicit ModeRun(bool in_rounds) : PartialRun(1) {
    options.partial.enabled = in_rounds;
    options.partial.cap = 3;
    options.partial.groups_per_round = 3;
    Prepare(StartMode::kPaused);
    mode = MakeGenerationMode();
    REQUIRE(weights.Sync(0, "").ok());
    REQUIRE(weights.Wake().ok());
  }

  // Generates a batch of `step`; `missing` more complete groups than it has for each of `calls`.
  TokensById Generate(int64_t step, int calls = 1) {
    StepBatch batch(step, pool, progress, clock);
    REQUIRE(samples->BeginStep(step).ok());
    REQUIRE(mode->Prepare(batch).ok());
    for (int call = 1; call <= calls; ++call) {
      REQUIRE(mode->Generate(batch, options.train_batch_size).ok());
      REQUIRE(std::ssize(batch.prompts) == call * options.train_batch_size);
    }
    return Stored(batch);
  }

  // All samples of the batch's groups, each group complete and in its place.
  TokensById Stored(const StepBatch& batch) const {
    TokensById by_id;
    std::map<int64_t, int64_t> by_group;
    for (const SampleMeta& meta : samples->Metas()) {
      ++by_group[meta.group];
      const absl::StatusOr<Sample> sample = samples->Read(meta.sample_id);
      REQUIRE(sample.ok());
      REQUIRE(meta.sample_id >> 24 == batch.prompts.at(static_cast<size_t>(meta.group)).data_row);
      REQUIRE(sample->response_tokens() == LengthOf(meta.sample_id));
      by_id[meta.sample_id] = {sample->tokens.begin() + sample->prompt_tokens,
                               sample->tokens.end()};
    }
    REQUIRE(std::ssize(by_group) == std::ssize(batch.prompts));
    for (const auto& [group, count] : by_group) REQUIRE(count == options.samples_per_prompt);
    return by_id;
  }

  std::unique_ptr<GenerationMode> mode;
};

}  // namespace

TEST_CASE("a mode adds complete groups, and further ones when it is asked again", "[generation]") {
  for (const bool rounds : {false, true}) {
    INFO("rounds: " << rounds);
    ModeRun run(rounds);
    REQUIRE(run.Generate(1, 2).size() == 16);
    REQUIRE_FALSE(run.mode->background_running());
  }
}

TEST_CASE("a step that is rolled back is generated again with the same samples", "[generation]") {
  for (const bool rounds : {false, true}) {
    INFO("rounds: " << rounds);
    ModeRun run(rounds);
    (void)run.Generate(1);
    run.mode->CommitStep();
    const DataPosition committed = run.prompts.Position();
    const TokensById dropped = run.Generate(2);
    run.mode->RollBackStep();
    REQUIRE(run.prompts.Restore(committed).ok());
    REQUIRE(run.Generate(2) == dropped);
  }
}

TEST_CASE("a mode that is restored from a checkpoint continues as the one that saved it",
          "[generation]") {
  for (const bool rounds : {false, true}) {
    INFO("rounds: " << rounds);
    ModeRun run(rounds);
    (void)run.Generate(1);
    run.mode->CommitStep();
    const DataPosition saved = run.prompts.Position();
    const std::string checkpoint = run.dir.path() / "saved";
    REQUIRE(MakeFolder(checkpoint).ok());
    REQUIRE(run.mode->Save(checkpoint, 1).ok());
    const TokensById expected = run.Generate(2);

    ModeRun restored(rounds);
    REQUIRE(restored.mode->Restore(checkpoint, 1).ok());
    REQUIRE(restored.prompts.Restore(saved).ok());
    REQUIRE(restored.Generate(2) == expected);
  }
}

TEST_CASE("a mode without a checkpoint begins empty, whatever it generated before",
          "[generation]") {
  for (const bool rounds : {false, true}) {
    INFO("rounds: " << rounds);
    ModeRun run(rounds);
    const TokensById first = run.Generate(1);
    REQUIRE(run.mode->Restore("", 0).ok());
    REQUIRE(run.prompts.Restore({}).ok());
    REQUIRE(run.Generate(1) == first);
  }
}

TEST_CASE("nothing runs in the background without overlap, nor in the last step with it",
          "[generation]") {
  const auto runs = [](bool rounds, bool overlap, bool last) {
    ModeRun run(rounds);
    run.options.partial.overlap = overlap;
    run.mode = run.MakeGenerationMode();
    StepBatch batch(1, run.pool, run.progress, run.clock);
    batch.is_last = last;
    REQUIRE(run.samples->BeginStep(1).ok());
    REQUIRE(run.mode->Prepare(batch).ok());
    REQUIRE(run.mode->Generate(batch, run.options.train_batch_size).ok());
    run.mode->StartBackground(batch);
    return run.mode->background_running();
  };
  REQUIRE_FALSE(runs(false, false, false));
  REQUIRE_FALSE(runs(true, false, false));
  REQUIRE_FALSE(runs(true, true, true));
  REQUIRE(runs(true, true, false));
}

TEST_CASE("background generation ends with the step, whether it is kept or dropped",
          "[generation]") {
  for (const bool kept : {true, false}) {
    INFO("kept: " << kept);
    ModeRun run(true);
    run.options.partial.overlap = true;
    run.mode = run.MakeGenerationMode();
    StepBatch batch(1, run.pool, run.progress, run.clock);
    REQUIRE(run.samples->BeginStep(1).ok());
    REQUIRE(run.mode->Prepare(batch).ok());
    REQUIRE(run.mode->Generate(batch, run.options.train_batch_size).ok());
    run.mode->StartBackground(batch);
    REQUIRE(run.mode->background_running());
    if (kept) {
      REQUIRE(run.mode->StopBackground(batch).ok());
      run.mode->CommitStep();
    } else {
      run.mode->RollBackStep();
    }
    REQUIRE_FALSE(run.mode->background_running());
    // A second call has nothing to stop.
    REQUIRE(run.mode->StopBackground(batch).ok());
  }
}

}  // namespace tandem
