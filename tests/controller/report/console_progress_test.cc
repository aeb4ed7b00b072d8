#include "controller/report/console_progress.h"

#include <absl/strings/str_split.h>
#include <catch2/catch.hpp>

#include "controller/report/run_figures.h"
#include "controller/report/terminal_text.h"
#include "controller/store/run_store.h"
#include "tests/controller/report/shown_step.h"
#include "tests/support/text.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

using tandem::testing::Has;

// What a ConsoleProgress prints to a file.
struct Screen {
  explicit Screen(bool terminal) : Screen(ConsoleOptions{.terminal = terminal}) {}
  explicit Screen(ConsoleOptions options) : file(std::tmpfile()), progress(Into(file, options)) {}
  ~Screen() { std::fclose(file); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  std::string Text() const {
    std::rewind(file);
    std::string text(1 << 16, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    return text;
  }
  static ConsoleOptions Into(std::FILE* file, ConsoleOptions options) {
    options.out = file;
    return options;
  }
  std::FILE* file;
  ConsoleProgress progress;
};

// The lines about the shown step, made as step `step`.
std::vector<std::string> LinesOfStep(const ConsoleOptions& options, int64_t step) {
  Screen screen(options);
  const StepSurroundings around = testing::ShownSurroundings();
  StepRecord record = testing::ShownStep();
  record.step = step;
  screen.progress.OnLogProbs(step, around.log_probs);
  screen.progress.OnStepDetails(step, around.details);
  screen.progress.OnStep(record);
  return absl::StrSplit(screen.Text(), '\n', absl::SkipEmpty());
}

StepRecord MakeProgressStep(int64_t step, double seconds = 10) {
  StepRecord record;
  record.step = step;
  record.metrics = {{kRewardMean, 0.25 * static_cast<double>(step)},
                    {kResponseLengthMean, 6.0},
                    {kStepSeconds, seconds}};
  record.phases = {{"generate", 4, 1 << 20}};
  return record;
}

void PlayTwoSteps(Screen& screen) {
  RunInfo info;
  info.run_id = "r";
  info.run_dir = "runs/r";
  info.total_steps = 4;
  screen.progress.OnRunStart(info);
  for (int64_t step = 1; step <= 2; ++step) {
    screen.progress.OnPhase(step, "generate");
    screen.progress.OnPhaseProgress(step, 3, 8);
    screen.progress.OnLogProbs(step, {100, 100, 0, 0});
    screen.progress.OnStep(MakeProgressStep(step));
  }
}

}  // namespace

TEST_CASE("a message cannot steer the terminal", "[report][console]") {
  Screen screen(ConsoleOptions{.terminal = false});
  screen.progress.OnMessage("model of \x1b[2J\nreloaded");
  REQUIRE(screen.Text() == "model of \\x1b[2J\nreloaded\n");
}

TEST_CASE("ConsoleProgress prints a line per step with ETA and log-probs", "[report][console]") {
  Screen screen(false);
  PlayTwoSteps(screen);
  const std::string text = screen.Text();
  REQUIRE(Has(text, "step 2/4  v0  reward 0.5  10.0 s  ETA"));
  REQUIRE(Has(text, "ETA 20.0 s"));
  REQUIRE(Has(text, "100 of 100 token log-probs identical"));
  REQUIRE_FALSE(Has(text, "\r"));
}

TEST_CASE("ConsoleProgress says nothing of log-probs in a step that compared none",
          "[report][console][partial]") {
  Screen screen(false);
  PlayTwoSteps(screen);
  const size_t before = screen.Text().size();
  screen.progress.OnLogProbs(3, {0, 0, 0, 0});
  screen.progress.OnStep(MakeProgressStep(3));
  const std::string line = screen.Text().substr(before);
  REQUIRE(Has(line, "step 3/4"));
  REQUIRE_FALSE(Has(line, "identical"));
}

TEST_CASE("ConsoleProgress says that only tokens of the step's weights are compared",
          "[report][console][partial]") {
  Screen screen({.console_freq = 1});
  StepRecord step = MakeProgressStep(1);
  step.metrics.insert({{kRounds, 2}, {kStaleTokens, 40}});
  screen.progress.OnLogProbs(1, {100, 100, 0, 0});
  screen.progress.OnStep(step);
  REQUIRE(Has(screen.Text(),
              "100 of 100 token log-probs of the step's weights identical, |Δ| max 0 (40 "
              "tokens of older weights are not compared)\n"));
  screen.progress.OnLogProbs(2, {0, 0, 0, 0});
  screen.progress.OnStep(step);
  REQUIRE(Has(screen.Text(), "no log-probs compared: no token is of the step's weights\n"));
  // All of the step's own: nothing is left out.
  step.metrics[kStaleTokens] = 0;
  screen.progress.OnLogProbs(3, {7, 7, 0, 0});
  screen.progress.OnStep(step);
  REQUIRE(Has(screen.Text(), "7 of 7 token log-probs identical, |Δ| max 0\n"));
}

TEST_CASE("ConsoleProgress shows rounds and what is carried, and no rate without a round",
          "[report][console][partial]") {
  Screen screen(false);
  StepRecord step = MakeProgressStep(1);
  step.metrics.insert(
      {{kRounds, 2}, {kCarriedGroups, 5}, {kCarriedSamples, 17}, {kGenerationThroughput, 812}});
  screen.progress.OnStep(step);
  REQUIRE(Has(screen.Text(), "  gen 812 tok/s\n  2 rounds, 5 groups carried (17 samples)\n"));
  step.metrics.erase(kGenerationThroughput);
  step.metrics[kRounds] = 0;
  screen.progress.OnStep(step);
  REQUIRE(Has(screen.Text(), "  gen - tok/s\n  0 rounds, 5 groups carried"));
  step.metrics[kTailShare] = 0.5;
  screen.progress.OnRunEnd({}, {step});
  REQUIRE(Has(screen.Text(), "\npartial rollout: 0 rounds in 1 step, "));
  // Once.
  const std::string text = screen.Text();
  REQUIRE(text.find("the tail of generation") == text.rfind("the tail of generation"));
}

TEST_CASE("ConsoleProgress redraws one bar on a terminal", "[report][console]") {
  Screen screen(true);
  PlayTwoSteps(screen);
  REQUIRE(Has(screen.Text(), "0/4  generate 3/8"));  // no step is done yet
  REQUIRE(Has(screen.Text(), "1/4  generate 3/8"));
  REQUIRE(Has(screen.Text(), "\r"));
}

TEST_CASE("The further lines come at the first steps and then now and then", "[report][console]") {
  for (const auto& [step, lines] : std::vector<std::pair<int64_t, size_t>>{
           {1, 7}, {2, 7}, {3, 1}, {5, 7}, {10, 7}, {20, 1}, {25, 7}, {26, 1}, {50, 7}}) {
    INFO(step);
    REQUIRE(LinesOfStep({}, step).size() == lines);
    REQUIRE(LinesOfStep({.console_freq = 0}, step).size() == 1);
    REQUIRE(LinesOfStep({.console_freq = 1}, step).size() == 7);
  }
  REQUIRE(LinesOfStep({.console_freq = 4}, 8).size() == 7);
}

TEST_CASE("Lines about a step fit the terminal, and are whole in a file", "[report][console]") {
  const std::vector<std::string> whole = LinesOfStep({.console_freq = 1}, 25);
  REQUIRE(whole.size() == 7);
  for (const int columns : {40, 80, 120, 200}) {
    INFO(columns);
    const ConsoleOptions options{.terminal = true, .columns = columns, .console_freq = 1};
    const std::vector<std::string> lines = LinesOfStep(options, 25);
    REQUIRE(lines.size() == 7);
    for (size_t i = 0; i < lines.size(); ++i) {
      INFO(lines[i]);
      REQUIRE(ColumnsOf(lines[i]) <= static_cast<size_t>(columns));
      const bool fits = ColumnsOf(whole[i]) <= static_cast<size_t>(columns);
      REQUIRE((lines[i] == whole[i]) == fits);
      REQUIRE(lines[i].ends_with("…") == !fits);
    }
    // A narrow terminal is quiet unless it is asked to show everything.
    const ConsoleOptions usual{.terminal = true, .columns = columns};
    REQUIRE(LinesOfStep(usual, 25).size() == (columns < kNarrowTerminal ? 1 : 7));
  }
}

TEST_CASE("Samples and phases are shown as often as their keys say", "[report][console]") {
  const std::vector<std::string> samples = LinesOfStep({.console_freq = 0, .log_samples = 3}, 3);
  REQUIRE(samples.size() == 3);
  REQUIRE(Has(samples[2], "7 + 13 = 21. The answer is 21."));  // whole in a file
  REQUIRE(LinesOfStep({.console_freq = 0, .log_samples = 3}, 4).size() == 1);
  REQUIRE(LinesOfStep({.console_freq = 1, .log_samples = -1}, 3).size() == 5);
  const ConsoleOptions wide{.terminal = true, .columns = 160, .console_freq = 0, .log_samples = 1};
  REQUIRE(Has(LinesOfStep(wide, 3)[2], "7 + 13 = 21. The answer is 21."));
  const std::vector<std::string> phases = LinesOfStep({.console_freq = 0, .log_phases = 2}, 2);
  REQUIRE(phases.size() == 13);
  REQUIRE(Has(phases[1], "peak memory"));
  REQUIRE(Has(phases[3], "generate"));
  REQUIRE(LinesOfStep({.console_freq = 0, .log_phases = 2}, 3).size() == 1);
}

TEST_CASE("ConsoleProgress counts the updates that were skipped", "[report][console]") {
  for (const int skipped : {0, 1, 2}) {
    Screen screen(false);
    std::vector<StepRecord> steps;
    for (int64_t step = 1; step <= 3; ++step) {
      steps.push_back(MakeProgressStep(step));
      if (step <= skipped) steps.back().metrics[kSkippedUpdates] = 1;
    }
    screen.progress.OnRunEnd({}, steps);
    REQUIRE(Has(screen.Text(), "skipped") == (skipped > 0));
    if (skipped == 2) REQUIRE(Has(screen.Text(), "2 updates were skipped"));
  }
}

TEST_CASE("ConsoleProgress ends with what a long tail of generation costs", "[report][console]") {
  for (const double share : {0.05, 0.5}) {
    Screen screen(false);
    StepRecord step = MakeProgressStep(1);
    step.metrics[kTailShare] = share;
    screen.progress.OnRunEnd({}, {step});
    REQUIRE(Has(screen.Text(), "left 50 % of the slots empty\n") == (share > 0.2));
  }
}

TEST_CASE("ConsoleProgress counts to the end of a run that became shorter, and expects its share",
          "[report][console]") {
  Screen screen(false);
  screen.progress.OnRunStart(
      {.run_id = "r", .run_dir = "d", .total_steps = 50, .expected_val_rise = 0.4});
  screen.progress.OnShortened(10);
  screen.progress.OnStep(MakeProgressStep(1, 5));
  REQUIRE(Has(screen.Text(), "step 1/10"));
  REQUIRE(Has(screen.Text(), "ETA 45.0 s"));
  RunFigures figures;
  figures.evaluations = {{.step = 0, .prompts = 80, .metrics = {{kValRewardMean, 0.1}}},
                         {.step = 10, .prompts = 80, .metrics = {{kValRewardMean, 0.15}}}};
  screen.progress.OnRunEnd({.completed = true, .steps = 10}, figures);
  INFO(screen.Text());
  REQUIRE(Has(screen.Text(), "less than the 0.08 expected"));
}

TEST_CASE("ConsoleProgress tells a resumed run's own steps from all", "[report][console]") {
  for (const int64_t first : {0, 3}) {
    Screen screen(false);
    screen.progress.OnRunStart(
        {.run_id = "r", .run_dir = "d", .total_steps = 5, .first_step = first});
    screen.progress.OnRunEnd({.completed = true, .steps = 5, .seconds = 20}, {});
    INFO(screen.Text());
    REQUIRE(Has(screen.Text(), first == 0
                                   ? "finished after 5 steps in 20.0 s"
                                   : "finished after 5 steps: the 2 since the resume took 20.0 s"));
  }
}

TEST_CASE("ConsoleProgress ends with curve, phases and places", "[report][console]") {
  Screen screen(false);
  PlayTwoSteps(screen);
  RunSummary summary;
  summary.error = "trainer 1 was lost";
  summary.steps = 2;
  summary.checkpoint = "runs/r/checkpoints/step_2";
  summary.report = "runs/r/report.html";
  screen.progress.OnRunEnd(summary, {MakeProgressStep(1), MakeProgressStep(2)});
  const std::string text = screen.Text();
  REQUIRE(Has(text, "▁█"));
  REQUIRE(Has(text, "peak memory"));
  REQUIRE(Has(text, "failed: trainer 1 was lost"));
  REQUIRE(Has(text, "runs/r/report.html"));
  REQUIRE(Has(text, "checkpoints/step_2"));
}

TEST_CASE("ConsoleProgress names no file that the run did not write", "[report][console]") {
  Screen screen(false);
  screen.progress.OnRunEnd({.error = "no worker came"}, {});
  const std::string text = screen.Text();
  REQUIRE(Has(text, "failed: no worker came"));
  REQUIRE_FALSE(Has(text, "report"));
  REQUIRE_FALSE(Has(text, "run.db"));
}
