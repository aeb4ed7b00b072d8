// tandemctl drives a run that was started paused.
#include <csignal>
#include <filesystem>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

// Output of a command that must succeed.
std::string Ok(ClusterRig& rig, const std::vector<std::string>& arguments) {
  const auto result = rig.Ctl(arguments);
  INFO(arguments.front() << ": " << result.output << rig.Log("controller"));
  REQUIRE(result.code == 0);
  return result.output;
}

nlohmann::json OkJson(ClusterRig& rig, std::vector<std::string> arguments) {
  arguments.push_back("--json");
  return nlohmann::json::parse(Ok(rig, arguments));
}

TEST_CASE("tandemctl drives a paused run from the first status to the stop") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "20"},
                             {"trainer.save_freq", "-1"},
                             {"data.val_max_samples", "4"}}});
  rig.Set("data.val_files", rig.dir() / "data" / "val.jsonl");
  rig.SetPairs(2);
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });

  const std::string status = Ok(rig, {"status"});
  REQUIRE(Has(status, "step 0/20"));
  REQUIRE(Has(status, "trainer"));
  const auto status_json = OkJson(rig, {"status"});
  REQUIRE(status_json.at("workers").size() == 4);
  REQUIRE(status_json.at("state") == "paused");
  REQUIRE(status_json.at("workers")[0].at("worker").at("incarnation") == "1");
  for (const auto& worker : status_json.at("workers")) {
    REQUIRE(Has(worker.at("numerics_class"), "cpu-"));
    REQUIRE(Has(status, worker.at("kernel_set")));
  }

  REQUIRE(Has(Ok(rig, {"step"}), "done, last step 1"));
  REQUIRE(OkJson(rig, {"run", "2"}).at("done") == true);
  REQUIRE(OkJson(rig, {"status"}).at("step") == "3");
  REQUIRE(OkJson(rig, {"steps"}).at("steps").size() == 3);
  REQUIRE(Has(Ok(rig, {"steps"}), "reward"));

  const auto samples = OkJson(rig, {"samples", "--step", "2", "--limit", "5"});
  REQUIRE(samples.at("samples").size() == 5);
  REQUIRE(samples.at("total") == "16");
  REQUIRE(Has(samples.at("samples")[0].at("prompt"), "What is"));
  REQUIRE(Has(Ok(rig, {"samples"}), "16 samples"));

  const auto texts = OkJson(rig, {"generate", "What is 1 + 1?", "-n", "3", "--seed", "5"});
  REQUIRE(texts.at("texts").size() == 3);
  REQUIRE(texts.at("version") == "3");
  REQUIRE(OkJson(rig, {"generate", "What is 1 + 1?", "-n", "3", "--seed", "5"}).at("texts") ==
          texts.at("texts"));
  REQUIRE(OkJson(rig, {"evaluate"}).at("prompts") == "4");
  REQUIRE(Has(Ok(rig, {"evaluate", "-n", "2"}), "4 prompts"));
  REQUIRE(OkJson(rig, {"check"}).at("ok") == true);
  REQUIRE(Has(Ok(rig, {"check"}), "weights agree"));

  Ok(rig, {"resume"});
  rig.WaitForStatus("training to go on", [](const auto& s) { return s.step() >= 4; });
  Ok(rig, {"pause"});
  rig.WaitForStatus("the pause", [](const auto& s) { return s.state() == "paused"; });
  Ok(rig, {"stop"});
  const int code = launcher.Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(rig.HasRunFile("checkpoints/latest"));

  // What shows a run reads its files now; what drives it finds no controller.
  const std::string over = Ok(rig, {"status"});
  REQUIRE(Has(over, "  stopped  "));
  REQUIRE(Has(over, "from the files in "));
  const auto gone = rig.Ctl({"pause"});
  REQUIRE(gone.code == 69);
  REQUIRE(gone.output.find("controller") != std::string::npos);
}

TEST_CASE("tandemctl parity needs no run") {
  ClusterRig rig;
  const std::vector<std::string> parity = {
      "parity", "--model", rig.model_dir(), "--tokens", "200", "--threads", "1"};
  const std::string text = Ok(rig, parity);
  INFO(text);
  REQUIRE(Has(text, "rollout decode = trainer forward: 256 of 256 log-probs identical"));
  REQUIRE(Has(text, "trainer forward ("));
  REQUIRE(Has(text, "parity holds"));
  const auto report = OkJson(rig, parity);
  REQUIRE(report.at("ok") == true);
  REQUIRE(report.at("ops").at("trainer forward").at("token_log_probs").at("rows") == 256);
  REQUIRE(rig.Ctl({"parity", "--model", "/no/such/model"}).code == 1);
  REQUIRE(rig.Ctl({"parity"}).code == 64);
}

TEST_CASE("what a user asks wrongly is refused and the run lives on") {
  ClusterRig rig;
  rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
  for (const char* steps : {"0", "-1", "x"}) {
    const auto refused = rig.Ctl({"run", steps});
    REQUIRE(refused.code == 64);
    REQUIRE(Has(refused.output, "give 1 or more"));
  }
  REQUIRE(rig.Ctl({"generate", "", "--raw"}).code == 1);
  REQUIRE(rig.Ctl({"check", "--hf", "/no/such/model"}).code == 1);
  const auto nonsense = rig.Ctl({"nonsense"});
  REQUIRE(nonsense.code == 64);
  REQUIRE(Has(nonsense.output, "there is no command \"nonsense\""));
  REQUIRE(Has(rig.Ctl({"data", "nonsense"}).output, "\"nonsense\""));
  const auto nowhere = rig.Ctl({"--address", "foo", "status"});
  REQUIRE(nowhere.code == 64);
  REQUIRE(Has(nowhere.output, "not host:port or unix:/path: foo"));
  REQUIRE(rig.Ctl({"generate", "hello", "-n", "0"}).code == 64);
  REQUIRE(rig.Ctl({"evaluate", "-n", "-1"}).code == 64);
  REQUIRE(rig.Ctl({"generate", ""}).code == 1);
  const auto absent = rig.Ctl({"samples", "--step", "99"});
  REQUIRE(absent.code == 1);
  REQUIRE(Has(absent.output, "no step 99"));
  const auto operation = OkJson(rig, {"run", "--no-wait"});
  REQUIRE(operation.at("done") == false);
  const auto again = rig.Ctl({"step"});
  INFO(again.output);
  rig.WaitForStatus("all steps", [](const auto& s) { return s.step() == 3; });
  const auto finished = rig.Ctl({"step"});
  REQUIRE(finished.code == 1);
  REQUIRE(Has(finished.output, "trainer.total_training_steps"));
  Ok(rig, {"stop"});
}

TEST_CASE("Ctrl-C of a run that has made all its steps and waits for commands ends it with 0") {
  ClusterRig rig({.config = {{"data.val_max_samples", "4"}}});
  rig.Set("data.val_files", rig.dir() / "data" / "val.jsonl");
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
  Ok(rig, {"run"});
  Ok(rig, {"evaluate"});
  REQUIRE(rig.Status()->phase().empty());
  launcher.Signal(SIGINT);
  const int code = launcher.Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(rig.HasRunFile("checkpoints/finished"));
  // What the run has left is read without a controller, and no socket is among it.
  REQUIRE(OkJson(rig, {"steps"}).at("steps").size() == 3);
  REQUIRE(Has(Ok(rig, {"steps", "--undone"}), "no step was undone"));
  for (const auto& entry : std::filesystem::directory_iterator(rig.run_dir())) {
    INFO(entry.path());
    REQUIRE_FALSE(entry.is_socket());
  }
}

TEST_CASE("steps that a killed controller had not saved are named until they are made again") {
  ClusterRig rig({.config = {{"trainer.save_freq", "-1"}}});
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
  Ok(rig, {"run", "2"});
  for (const std::string& process : rig.Running()) {
    if (process.find("tandem-controller") != std::string::npos) kill(std::stoi(process), SIGKILL);
  }
  rig.WaitForStatus("the controller to come back",
                    [](const auto& s) { return s.state() == "paused" && s.step() == 0; });
  REQUIRE(Has(Ok(rig, {"status"}),
              "undone: steps 1 to 2 were lost in a recovery, as no checkpoint had them"));
  Ok(rig, {"run", "1"});
  REQUIRE(Has(Ok(rig, {"status"}), "undone: step 2 was lost"));
  Ok(rig, {"stop"});
  REQUIRE(launcher.Wait() == 0);
  const std::string said = rig.Log("launcher");
  INFO(said);
  REQUIRE(Has(said, "2 steps were undone by recoveries (tandemctl steps --undone)"));
  REQUIRE(Has(said, "those after step 1 were not made again"));
}

}  // namespace
}  // namespace tandem::testing
