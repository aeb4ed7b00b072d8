// Everything of a run is killed in the middle of a step: its files tell what happened, to readers
// that change none of them, and the next start goes on.
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tests/e2e/recovery.h"
#include "tests/support/file_mode.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

std::string Shown(ClusterRig& rig, const std::vector<std::string>& arguments) {
  const ClusterRig::CtlResult result = rig.Ctl(arguments);
  INFO(result.output);
  REQUIRE(result.code == 0);
  return result.output;
}

// Every file at or below `folder`, by path, with its bytes.
std::map<std::string, std::string> FilesIn(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    files[entry.path().string()] = entry.is_regular_file() ? FileText(entry.path()) : "";
  }
  return files;
}

std::vector<std::string> NamesOf(const std::map<std::string, std::string>& files) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : files) names.push_back(name);
  return names;
}

// That all commands show a run that no controller serves, make no file there, as SQLite's -shm and
// -wal would be, and leave those that are there as they are. Modes would not show it to root.
void RequireReadable(ClusterRig& rig, const std::string& state) {
  const std::string dir = rig.run_dir();
  const auto before = FilesIn(dir);
  REQUIRE(Has(Shown(rig, {"runs", dir}), state));
  REQUIRE(Has(Shown(rig, {"runs", rig.dir(), "--json"}), "\"state\":\"" + state + "\""));
  REQUIRE(Has(Shown(rig, {"status", dir}), "  " + state + "  "));
  REQUIRE(Has(Shown(rig, {"steps", dir, "--last", "5"}), "reward"));
  REQUIRE(Has(
      Shown(rig, {"steps", dir, "--metrics", "critic/rewards/std,critic/groups/zero_std_ratio"}),
      "critic/groups/zero_std_ratio"));
  const std::string step = Shown(rig, {"steps", dir, "--step", "1"});
  for (const char* name : {"\nadvantage ", "\nlength ", "\nlog_prob ", "\nreward "}) {
    REQUIRE(Has(step, name));
  }
  REQUIRE(Has(Shown(rig, {"batch", "inspect", dir + "/samples/step_000001.samples"}), "log_probs"));
  const std::string samples = Shown(rig, {"samples", dir});
  REQUIRE(Has(samples, "What is"));
  REQUIRE(Has(samples, "4 groups: "));
  REQUIRE(Has(Shown(rig, {"memory", dir}), "train"));
  REQUIRE(Has(Shown(rig, {"report", dir, "--html", rig.dir() / "page.html"}), "page.html"));
  const auto after = FilesIn(dir);
  REQUIRE(NamesOf(after) == NamesOf(before));
  REQUIRE((after == before));  // not expanded: the files are megabytes
}

double MeanReward(const nlohmann::json& samples) {
  double sum = 0;
  for (const auto& sample : samples) sum += sample.at("reward").get<double>();
  return sum / static_cast<double>(samples.size());
}

// That step 3 has all that is recorded of a step, and that it agrees with the step's metrics.
void RequireDetails(ClusterRig& rig) {
  const std::string dir = rig.run_dir();
  const auto json = [&](const std::vector<std::string>& arguments) {
    return nlohmann::json::parse(Shown(rig, arguments));
  };
  const auto step = json({"steps", dir, "--step", "3", "--json"}).at("steps").at(0);
  const auto& metrics = step.at("metrics");
  std::map<std::string, int64_t> counted;
  for (const auto& histogram : step.at("histograms")) {
    for (const auto& count : histogram.at("counts")) {
      counted[histogram.at("name")] += std::stoll(count.get<std::string>());
    }
    if (histogram.at("name") != "length") continue;
    REQUIRE(histogram.at("low") == metrics.at("response_length/min"));
    REQUIRE(histogram.at("high") == metrics.at("response_length/max"));
  }
  REQUIRE(counted["reward"] == 16);
  REQUIRE(counted["length"] == 16);
  const double tokens = 16 * metrics.at("response_length/mean").get<double>();
  REQUIRE(static_cast<double>(counted["log_prob"]) == Approx(tokens));
  REQUIRE(counted["advantage"] == counted["log_prob"]);
  double loss = 0;
  for (const auto& update : step.at("updates")) {
    loss += update.at("metrics").at("actor/loss").get<double>();
  }
  REQUIRE(loss / static_cast<double>(step.at("updates").size()) ==
          Approx(metrics.at("actor/loss").get<double>()));
  REQUIRE(step.at("updates").rbegin()->at("version") == step.at("version"));
  REQUIRE(step.at("syncs").size() == 2);
  for (const auto& sync : step.at("syncs")) {
    REQUIRE(sync.at("version") == step.at("version"));
    REQUIRE(std::stoll(sync.at("bytes").get<std::string>()) > 0);
    REQUIRE(sync.at("digest").get<std::string>().size() == 32);
  }
  REQUIRE_FALSE(step.at("load").empty());
  REQUIRE(std::stoll(step.at("load").at(0).at("load").at("kv_blocks").get<std::string>()) > 0);

  const auto samples = json({"samples", dir, "--step", "3", "--json"}).at("samples");
  REQUIRE(MeanReward(samples) == Approx(metrics.at("critic/rewards/mean").get<double>()));
  REQUIRE(samples.at(0).at("prompt_id") != "0");
  REQUIRE(samples.at(0).at("arrived_at") != "");
  REQUIRE(samples.at(0).at("min_log_prob") < 0);
  const auto same =
      json({"samples", dir, "--prompt", samples.at(0).at("prompt_id"), "--json"}).at("samples");
  for (const auto& sample : same) REQUIRE(sample.at("prompt") == samples.at(0).at("prompt"));
  const auto validation =
      json({"samples", dir, "--eval", "--limit", "999", "--json"}).at("samples");
  REQUIRE(validation.at(0).at("step") == "3");
  REQUIRE(MeanReward(validation) ==
          Approx(rig.Evaluations().at(3).at("val/reward/mean").get<double>()));
  REQUIRE(Has(Shown(rig, {"samples", dir, "--eval", "--step", "0"}), "What is"));
}

TEST_CASE("a run that is killed in train is read from its files, and then resumes") {
  ClusterRig rig({.validation = true});
  rig.SetPairs(2);
  rig.Set("trainer.save_freq", "1");
  rig.Set("cluster.heartbeat_seconds", "0.05");  // so that each step has some
  // In the second step.
  rig.SetFault("trainer", 1, "train", 2, "stop");
  TestProcess& launcher = rig.Launch();
  rig.WaitForFault("the trainer's stop", launcher);
  const auto running = nlohmann::json::parse(Shown(rig, {"status", "--json"}));
  REQUIRE(running.at("state") == "running");
  REQUIRE(running.at("from_files") == false);
  launcher.Signal(SIGKILL);
  launcher.Wait();
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(ModeOf(rig.run_dir() + "/blackbox") == 0600);

  const auto status = nlohmann::json::parse(Shown(rig, {"status", rig.run_dir(), "--json"}));
  REQUIRE(status.at("from_files") == true);
  REQUIRE(status.at("state") == "killed");
  REQUIRE(status.at("phase") == "train");
  REQUIRE(status.at("run_id") == running.at("run_id"));
  REQUIRE(status.at("step") == running.at("step"));
  REQUIRE(status.at("attempt") == "1");
  bool asked = false;
  for (const auto& call : status.at("calls")) {
    if (call.at("worker") != "trainer 1") continue;
    asked = true;
    REQUIRE(call.at("method") == "ForwardBackward");
    REQUIRE(call.at("answered_at") == "");
  }
  REQUIRE(asked);
  const std::string text = Shown(rig, {"status", rig.run_dir()});
  INFO(text);
  REQUIRE(Has(text, "phase train began at "));
  REQUIRE(Has(text, "last lines of logs/trainer-1.log"));
  REQUIRE(Has(text, "  checkpoint  "));
  RequireReadable(rig, "killed");
  REQUIRE(Has(FileText(rig.dir() / "page.html"), "The run is killed in phase train of step 2"));

  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(OutcomeOf(rig, 3).weights == Undisturbed().weights);
  RequireReadable(rig, "finished");
  RequireDetails(rig);
  const auto over = nlohmann::json::parse(Shown(rig, {"status", rig.run_dir(), "--json"}));
  REQUIRE(over.at("attempt") == "2");
  REQUIRE(over.at("ended_at") != "");
  REQUIRE(Has(FileText(rig.dir() / "page.html"), "3 of 3 steps are recorded; the run finished at"));
  // A medium that cannot be written is no hindrance; modes do not keep root from writing.
  if (geteuid() == 0) {
    WARN("not run: no mode makes a folder read-only for root");
    return;
  }
  std::filesystem::permissions(
      rig.run_dir(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  REQUIRE(Has(Shown(rig, {"status", rig.run_dir()}), "finished"));
  std::filesystem::permissions(rig.run_dir(), std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace tandem::testing
