// What a run shows while it goes on: the lines of its steps, its lines for programs, and the rows
// of its workers in `tandemctl status`.
#include <filesystem>
#include <map>
#include <regex>

#include <absl/strings/str_split.h>
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

std::string RunToTheEnd(ClusterRig& rig, const std::vector<std::string>& arguments = {}) {
  const int code = rig.Launch(arguments).Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 0);
  return rig.Log("launcher");
}

TEST_CASE("the console has the lines of each step, whole in a file") {
  ClusterRig rig({.config = {{"trainer.console_freq", "25"},
                             {"trainer.log_samples", "3"},
                             {"trainer.log_phases", "3"}}});
  const std::string console = RunToTheEnd(rig);
  INFO(console);
  const std::regex line(
      "step ([1-3])/3  v\\1  reward [0-9.e+-]+ ±[0-9.]+  loss [0-9.e+-]+  entropy [0-9.]+  kl "
      "[0-9.e+-]+  clip [0-9.]+ %  grad [0-9.e+-]+  [0-9.ms ]+  ETA [0-9.ms ]+");
  int lines = 0, groups = 0, compared = 0, samples = 0, tables = 0;
  const std::vector<std::string> shown = absl::StrSplit(console, '\n');
  for (const std::string& text : shown) {
    lines += std::regex_match(text, line) ? 1 : 0;
    groups += Has(text, "  groups 4: ") && Has(text, "   16 samples, ") ? 1 : 0;
    compared += Has(text, ", |Δ| max 0, ratio 1 exactly   weights ") && Has(text, ", digest ");
    samples += Has(text, " tok  \"") && Has(text, "\" -> \"") ? 1 : 0;
    tables += Has(text, "so far") && Has(text, "peak memory") ? 1 : 0;
  }
  REQUIRE(lines == 3);
  REQUIRE(groups == 2);  // steps 1 and 2
  REQUIRE(compared == 2);
  REQUIRE(samples >= 3);
  REQUIRE(tables == 1);
  const auto metrics = rig.Metrics();
  for (const char* name : {"actor/loss", "actor/pg_loss", "actor/entropy", "actor/grad_norm",
                           "actor/lr", "actor/pg_clipfrac", "response_length/mean",
                           "critic/rewards/std", "critic/groups/zero_std_ratio"}) {
    INFO(name);
    REQUIRE(metrics.at(3).at(name).is_number());
  }
}

TEST_CASE("--log json is an object per line, and nothing else") {
  ClusterRig rig({.validation = true, .config = {{"trainer.logger", "[console, jsonl]"}}});
  // Closed to others, so that the launcher has nothing to say of it on stderr, which is kept with
  // stdout.
  std::filesystem::create_directories(rig.run_dir());
  std::filesystem::permissions(rig.run_dir(), std::filesystem::perms::owner_all);
  const std::string output = RunToTheEnd(rig, {"--log", "json"});
  std::map<std::string, int> events;
  const std::vector<std::string> lines = absl::StrSplit(output, '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    INFO(line);
    const auto object = nlohmann::json::parse(line);
    const std::string event = object.at("event");
    ++events[event];
    if (event != "step") continue;
    REQUIRE(object.at("metrics").at("critic/rewards/mean").is_number());
    REQUIRE(object.at("log_probs").at("compared") == object.at("log_probs").at("identical"));
    REQUIRE(object.at("phases").size() > 5);
    REQUIRE_FALSE(object.at("samples").empty());
    REQUIRE(object.at("weights").at("bytes") > 0);
  }
  REQUIRE(events["run"] == 1);
  REQUIRE(events["step"] == 3);
  REQUIRE(events["phase"] > 15);
  REQUIRE(events["evaluation"] == 4);
  REQUIRE(events["message"] > 0);
  REQUIRE(events["end"] == 1);
}

TEST_CASE("the status of a run has a row per rollout and per trainer") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "20"}}});
  rig.SetPairs(2);
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
  REQUIRE(rig.Ctl({"step"}).code == 0);
  // The heartbeats after the step tell its numbers.
  rig.WaitForStatus("the loads of all workers", [](const auto& s) {
    int told = 0;
    for (const v1::WorkerStatus& worker : s.workers()) {
      const v1::GenerationLoad& load = worker.generation();
      told += load.kv_blocks() > 0 && load.generated_tokens() > 0 && load.prefix_hit_tokens() > 0 &&
              load.peak_kv_blocks_used() > 0;
      told +=
          worker.training().shard_bytes() > 0 && worker.training().last_collective().count() > 0;
    }
    return told == 4;
  });
  const auto status = rig.Ctl({"status"});
  INFO(status.output);
  REQUIRE(status.code == 0);
  REQUIRE(std::regex_search(status.output, std::regex("\nrollout +state +version +queue +running "
                                                      "+waiting +preempted +KV used +KV free "
                                                      "+prefix hits +tokens/s\n0 .*\n1 ")));
  REQUIRE(std::regex_search(status.output,
                            std::regex(
                                // Of a collective that goes on, for how long it does.
                                "\ntrainer +phase +version +layer +shard +last collective\n0 "
                                ".*(ago|, for .*)\n1 .*(ago|, for .*)\n")));
  REQUIRE(rig.Ctl({"stop"}).code == 0);
  REQUIRE(launcher.Wait() == 0);
}

}  // namespace
}  // namespace tandem::testing
