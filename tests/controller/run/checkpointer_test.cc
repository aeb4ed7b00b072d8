// When a run's checkpoints are saved, without the loop that asks for them.
#include "controller/run/checkpointer.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/disk_refusal.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

// A run of five steps that saves after every second one.
struct FiveSteps : testing::FakeRun {
  FiveSteps() : FakeRun(1) {
    options.total_steps = 5;
    options.save_freq = 2;
    Prepare(StartMode::kPaused);
  }
};

struct CheckpointerRun : FiveSteps {
  CheckpointerRun() { checkpointer.StartFrom(""); }

  absl::Status FinishStep(int64_t step) {
    position.finished_steps = position.version = step;
    return checkpointer.SaveIfDue();
  }
  std::vector<int64_t> SavedSteps() const {
    std::vector<int64_t> steps;
    for (const CheckpointEntry& entry : checkpoints->List()) steps.push_back(entry.step);
    return steps;
  }
  void FillDisk() {
    journal.FailNext("trainer 0", "SaveState", absl::ResourceExhaustedError("no space left"));
  }

  RunPosition position;
  RunLength length{{}, options.total_steps};
  std::unique_ptr<GenerationMode> mode = MakeGenerationMode();
  Recovery recovery{*parts, options};
  BatchSaver saver{*parts, options, position};
  Checkpointer checkpointer{{.context = *parts,
                             .options = options,
                             .position = position,
                             .length = length,
                             .generation = *mode,
                             .recovery = recovery,
                             .saver = saver}};
};

using Steps = std::vector<int64_t>;

}  // namespace

TEST_CASE("a checkpoint is saved every save_freq steps and after the last, each once",
          "[checkpointer]") {
  CheckpointerRun run;
  for (int64_t step = 1; step <= 5; ++step) {
    REQUIRE(run.FinishStep(step).ok());
    REQUIRE(run.FinishStep(step).ok());  // as after a validation that had to be made up for
  }
  REQUIRE(run.SavedSteps() == Steps{2, 4, 5});
  REQUIRE(run.journal.Count("trainer 0 SaveState") == 3);
  REQUIRE(std::filesystem::path(run.checkpointer.newest()).filename() == "step_5");
}

TEST_CASE("without save_freq a checkpoint is saved after the step that ends ten minutes later",
          "[checkpointer]") {
  CheckpointerRun run;
  run.options.save_freq = 0;
  REQUIRE(run.FinishStep(1).ok());
  run.clock.Advance(absl::Minutes(9));
  REQUIRE(run.FinishStep(2).ok());
  REQUIRE(run.SavedSteps().empty());
  run.clock.Advance(absl::Minutes(1));
  REQUIRE(run.FinishStep(3).ok());
  REQUIRE(run.SavedSteps() == Steps{3});
  run.clock.Advance(absl::Minutes(9));
  REQUIRE(run.FinishStep(4).ok());
  REQUIRE(run.SavedSteps() == Steps{3});
}

TEST_CASE("a run that ends early saves the steps that no checkpoint has", "[checkpointer]") {
  CheckpointerRun run;
  REQUIRE(run.checkpointer.SaveUnsaved().ok());  // nothing was trained yet
  REQUIRE(run.SavedSteps().empty());
  REQUIRE(run.FinishStep(1).ok());
  REQUIRE_FALSE(run.checkpointer.up_to_date());
  REQUIRE(run.checkpointer.SaveUnsaved().ok());
  REQUIRE(run.checkpointer.up_to_date());
  REQUIRE(run.checkpointer.SaveUnsaved().ok());
  REQUIRE(run.SavedSteps() == Steps{1});
  REQUIRE(run.journal.Count("trainer 0 SaveState") == 1);
}

TEST_CASE("a run that continues from a checkpoint has saved its steps", "[checkpointer]") {
  CheckpointerRun run;
  run.position.finished_steps = 4;
  run.checkpointer.StartFrom("/old/step_4");
  REQUIRE(run.checkpointer.newest() == "/old/step_4");
  REQUIRE(run.checkpointer.SaveIfDue().ok());
  REQUIRE(run.checkpointer.SaveUnsaved().ok());
  REQUIRE(run.journal.Count("trainer 0 SaveState") == 0);
}

TEST_CASE("a checkpoint waits for a full disk, and is saved once there is space",
          "[checkpointer]") {
  CheckpointerRun run;
  const absl::Status full = WithDiskRefused(absl::ResourceExhaustedError("no space left"));
  run.journal.FailNext("trainer 0", "SaveState", full, 0, 2);
  const Instant begin = run.clock.Now();
  REQUIRE(run.FinishStep(2).ok());
  REQUIRE(run.clock.Now() - begin == absl::Seconds(20));
  REQUIRE(run.SavedSteps() == Steps{2});
  REQUIRE(run.progress.messages.size() >= 2);
  REQUIRE(testing::Has(run.progress.messages.front(), "for the checkpoint of step 2"));
  // A stop ends the wait: no later checkpoint, and the older one stays.
  run.control->StopAfterStep();
  run.journal.FailNext("trainer 0", "SaveState", full);
  REQUIRE(absl::IsResourceExhausted(run.FinishStep(5)));
  REQUIRE(run.SavedSteps() == Steps{2});
}

TEST_CASE("a disk that refuses the record of a checkpoint's time costs no second checkpoint",
          "[checkpointer]") {
  CheckpointerRun run;
  run.checkpointer.OnRecorded({.step = 2});
  run.store.on_write = [] { return WithDiskRefused(absl::DataLossError("Input/output error")); };
  REQUIRE(IsDiskRefused(run.FinishStep(2)));
  REQUIRE(run.journal.Count("trainer 0 SaveState") == 1);
  REQUIRE(run.SavedSteps() == Steps{2});
}

TEST_CASE("a lack of something else is an error after the last step alone", "[checkpointer]") {
  CheckpointerRun run;
  run.FillDisk();
  REQUIRE(run.FinishStep(2).ok());
  REQUIRE(testing::Has(run.progress.messages.back(), "no checkpoint of step 2: checkpoint "));
  REQUIRE(run.checkpointer.newest().empty());
  run.FillDisk();
  REQUIRE(absl::IsResourceExhausted(run.FinishStep(5)));
  REQUIRE(run.SavedSteps().empty());
}

TEST_CASE("the time of a checkpoint is added to the record of its own step", "[checkpointer]") {
  CheckpointerRun run;
  run.checkpointer.OnRecorded({.step = 2});
  REQUIRE(run.FinishStep(2).ok());
  REQUIRE(run.store.steps.at(2).phases.back().phase == "save");
  REQUIRE(run.FinishStep(4).ok());  // of a process before this one
  REQUIRE_FALSE(run.store.steps.contains(4));
}

}  // namespace tandem
