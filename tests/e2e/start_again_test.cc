// A finished run that is started again: nothing that it made is lost.
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// What a finished run has made: contents by name below the run directory.
std::map<std::string, std::string> MadeByRun(const std::string& folder) {
  std::map<std::string, std::string> made;
  for (const char* name : {"run.db", "metrics.jsonl", "report.html", "checkpoints", "samples",
                           "tensorboard", "partial_journal.jsonl"}) {
    const fs::path path = fs::path(folder) / name;
    if (fs::is_regular_file(path)) made[name] = FileText(path);
    if (!fs::is_directory(path)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      const std::string file = entry.path().lexically_relative(folder);
      // The lock of a controller that is at work, or was killed.
      if (!entry.is_regular_file() || Has(file, "controller.lock")) continue;
      made[file] = FileText(entry.path());
    }
  }
  return made;
}

// The names in a run directory that are not the run's records: each start writes them anew, or
// needs them.
const std::set<std::string> kOfNoRun = {"blackbox",     // goes on over all starts
                                        "checkpoints",  // whose contents move
                                        "controller.lock", "generation",    "input_digests.json",
                                        "launch",          "launcher.lock", "logs",
                                        "partial_pool",  // restored from checkpoint and journal
                                        "pids.json",       "token",         "workers.json"};

std::set<std::string> RecordNames(const std::string& run_dir) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(run_dir)) {
    const std::string name = entry.path().filename();
    if (!kOfNoRun.contains(name)) names.insert(name);
  }
  return names;
}

TEST_CASE("a finished run that is started again in vain is left as it was, byte for byte") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "2"}}});
  REQUIRE(rig.Launch().Wait() == 0);
  const auto made = MadeByRun(rig.run_dir());
  REQUIRE(made.contains("run.db"));
  REQUIRE(made.contains("checkpoints/finished"));
  REQUIRE(made.contains("report.html"));

  // No workers come; one start is given up with Ctrl-C, the next is killed.
  for (const int signal : {SIGINT, SIGKILL}) {
    TestProcess& controller = rig.StartController();
    rig.WaitForStatus("the wait for workers",
                      [](const auto& status) { return status.state() == "starting"; });
    controller.Signal(signal);
    controller.Wait();
    INFO(rig.Log("controller"));
    REQUIRE(MadeByRun(rig.run_dir()) == made);
    REQUIRE_FALSE(rig.HasRunFile("checkpoints.previous"));
  }
  const auto memory = rig.Ctl({"memory", "--step", "2"});
  INFO(memory.output);
  REQUIRE(memory.code == 0);

  // A third whose workers come sets it aside, all in one folder.
  REQUIRE(rig.Launch().Wait() == 0);
  INFO(rig.Log("launcher"));
  REQUIRE(Has(rig.Log("launcher"), "had finished its 2 steps"));
  const std::string previous = rig.run_dir() + "/checkpoints.previous";
  REQUIRE(Has(rig.Log("launcher"), "the earlier run was moved to " + previous));
  for (const auto& [name, text] : made) {
    INFO(name);
    const std::string in_folder = Has(name, "checkpoints/") ? name.substr(12) : name;
    REQUIRE(FileText(previous + "/" + in_folder) == text);
  }
  REQUIRE(rig.RunFile("checkpoints/finished") == "2\n");
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("so is one with partial rollout, whose journal goes with it") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "2"},
                             {"data.max_response_length", "32"},
                             {"rollout.partial.max_tokens_per_round", "6"},
                             {"rollout.partial.groups_per_round", "6"}}});
  REQUIRE(rig.Launch().Wait() == 0);
  const auto made = MadeByRun(rig.run_dir());
  REQUIRE(made.contains("partial_journal.jsonl"));
  const std::set<std::string> names = RecordNames(rig.run_dir());

  // Another seed: the journal is of another run.
  rig.Set("trainer.seed", "7");
  TestProcess& controller = rig.StartController();
  rig.WaitForStatus("the wait for workers",
                    [](const auto& status) { return status.state() == "starting"; });
  controller.Signal(SIGINT);
  controller.Wait();
  REQUIRE(MadeByRun(rig.run_dir()) == made);

  REQUIRE(rig.Launch().Wait() == 0);
  INFO(rig.Log("launcher"));
  const std::string previous = "checkpoints.previous/";
  REQUIRE(rig.RunFile(previous + "partial_journal.jsonl") == made.at("partial_journal.jsonl"));
  REQUIRE(rig.HasRunFile("partial_journal.jsonl"));
  // EarlierRun knows each name that a run leaves: a new one belongs into its list, or into
  // kOfNoRun.
  REQUIRE(names.contains("tensorboard"));
  for (const std::string& name : names) {
    INFO(name);
    REQUIRE(rig.HasRunFile(previous + name));
  }
  REQUIRE(rig.RunFile("checkpoints/finished") == "2\n");
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("a report that cannot be written does not make the run look unfinished") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "1"}}});
  fs::create_directories(rig.run_dir() + "/report.html/in the way");
  REQUIRE(rig.Launch().Wait() == 0);
  INFO(rig.Log("launcher"));
  REQUIRE(Has(rig.Log("launcher"), "warning: no report was written: "));
  REQUIRE(Has(rig.Log("launcher"), "finished after 1 steps"));
  REQUIRE(rig.RunFile("checkpoints/finished") == "1\n");
  REQUIRE(rig.LeftBehind() == "");

  // It is made later, from the records.
  REQUIRE(rig.Ctl({"report"}).code != 0);
  fs::remove_all(rig.run_dir() + "/report.html");
  const auto report = rig.Ctl({"report"});
  INFO(report.output);
  REQUIRE(report.code == 0);
  REQUIRE(Has(rig.RunFile("report.html"), "1 of 1 steps are recorded; the run finished at "));
}

}  // namespace
}  // namespace tandem::testing
