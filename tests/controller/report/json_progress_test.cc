#include "controller/report/json_progress.h"

#include <cmath>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "controller/report/run_figures.h"
#include "tests/controller/report/shown_step.h"
#include "tests/fakes/fake_clock.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

struct Lines {
  Lines() : file(std::tmpfile()), progress(file, clock) {}
  ~Lines() { std::fclose(file); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  std::vector<nlohmann::json> Read() const {
    std::rewind(file);
    std::string text(1 << 16, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::vector<nlohmann::json> lines;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      lines.push_back(nlohmann::json::parse(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    return lines;
  }
  testing::FakeClock clock;
  std::FILE* file;
  JsonProgress progress;
};

}  // namespace

TEST_CASE("JsonProgress writes an object per line for every event", "[report][json]") {
  Lines out;
  out.progress.OnRunStart({.run_id = "p/r/1", .run_dir = "runs/r", .total_steps = 50});
  out.progress.OnPhase(25, "generate");
  out.progress.OnPhaseProgress(25, 1, 8);
  const StepSurroundings around = testing::ShownSurroundings();
  out.progress.OnLogProbs(25, around.log_probs);
  out.progress.OnStepDetails(25, around.details);
  out.progress.OnStep(testing::ShownStep());
  out.progress.OnEvaluation({.step = 25, .prompts = 4, .samples = 8, .metrics = {{"a", 1}}});
  out.progress.OnShortened(30);
  out.progress.OnMessage("a\nb");
  out.progress.OnRunEnd({.error = "lost", .steps = 25}, {});
  const auto lines = out.Read();
  std::vector<std::string> events;
  for (const auto& line : lines) {
    events.push_back(line.at("event"));
    REQUIRE(line.at("time").is_string());
  }
  REQUIRE(events == std::vector<std::string>{"run", "phase", "step", "evaluation", "shortened",
                                             "message", "end"});
  REQUIRE(lines[0].at("total_steps") == 50);
  REQUIRE(lines[1].at("phase") == "generate");
  const auto& step = lines[2];
  REQUIRE(step.at("step") == 25);
  REQUIRE(step.at("metrics").at("actor/loss") == -0.0143);
  REQUIRE(step.at("phases").size() == 10);
  REQUIRE(step.at("phases")[1].at("seconds") == 1.42);
  REQUIRE(step.at("log_probs").at("identical") == 756);
  REQUIRE(step.at("weights").at("digest") == "9f3c41d0aa55bb66");
  REQUIRE(step.at("load").at("waiting") == 0);
  REQUIRE(step.at("samples")[1].at("response") == "7 + 13 = 21. The answer is 21.");
  REQUIRE(lines[3].at("metrics").at("a") == 1);
  REQUIRE(lines[5].at("text") == "a\nb");
  REQUIRE(lines[6].at("outcome") == "failed");
  REQUIRE(lines[6].at("error") == "lost");
}

TEST_CASE("JsonProgress has null for what is not finite, and nothing for what is missing",
          "[report][json]") {
  Lines out;
  StepRecord step{.step = 1, .metrics = {{"actor/grad_norm", NAN}}};
  StepDetails details;
  details.samples = {{.prompt = "\xff", .response = "x", .reward = INFINITY}};
  out.progress.OnStepDetails(1, details);
  out.progress.OnStep(step);
  out.progress.OnStep({.step = 2});
  const auto lines = out.Read();
  REQUIRE(lines[0].at("metrics").at("actor/grad_norm").is_null());
  REQUIRE(lines[0].at("samples")[0].at("reward").is_null());
  REQUIRE(lines[0].at("samples")[0].at("prompt") == "\ufffd");
  for (const char* absent : {"log_probs", "weights", "load"})
    REQUIRE_FALSE(lines[0].contains(absent));
  REQUIRE(lines[1].at("samples").empty());  // of the step before
}
