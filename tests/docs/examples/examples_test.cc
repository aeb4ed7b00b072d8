// The Python examples of docs/examples work when run as their first comments say.
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/support/cluster_rig.h"
#include "tests/support/free_port.h"

namespace tandem::testing {
namespace {

constexpr int kNoNetwork = 69;  // docs/examples/setup.sh

// docs/examples/setup.sh; ends the process as skipped where grpcio cannot be installed.
void SetUpPython(const ClusterRig& rig) {
  TestProcess setup({.argv = {"docs/examples/setup.sh"}, .output = rig.dir() / "setup.log"});
  const int code = setup.Wait();
  if (code == kNoNetwork) {
    std::cout << "skipped: " << setup.Output() << std::endl;
    std::_Exit(77);
  }
  INFO(setup.Output());
  REQUIRE(code == 0);
}

TestProcess Example(const ClusterRig& rig,
                    const std::string& script,
                    const std::vector<std::string>& arguments) {
  ProcessOptions options{.argv = {".deps/examples/bin/python", "docs/examples/" + script},
                         .output = rig.dir() / (script + ".log")};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  return TestProcess(std::move(options));
}

// Whole numbers in the responses of a step, on average.
double MeanNumbers(ClusterRig& rig, int64_t step) {
  const auto listed =
      rig.Ctl({"samples", "--step", std::to_string(step), "--limit", "200", "--json"});
  INFO(listed.output);
  REQUIRE(listed.code == 0);
  const nlohmann::json samples = nlohmann::json::parse(listed.output).at("samples");
  const std::regex number("-?[0-9]+");
  int64_t found = 0;
  for (const nlohmann::json& sample : samples) {
    const std::string text = sample.value("response", "");
    found += std::distance(std::sregex_iterator(text.begin(), text.end(), number), {});
  }
  return static_cast<double>(found) / static_cast<double>(samples.size());
}

TEST_CASE("the Python example trains two steps of a paused run and reads their metrics") {
  ClusterRig rig;
  SetUpPython(rig);
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait for orders",
                    [](const auto& status) { return status.state() == "paused"; });
  TestProcess python = Example(rig, "drive_training.py", {rig.controller_address()});
  const int code = python.Wait();
  INFO(python.Output() << rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(python.Output().find("step 0 of 3") != std::string::npos);
  for (const auto& [step, metrics] : rig.Metrics()) {
    REQUIRE(python.Output().find(fmt::format("step {}: reward {:.3f}\n", step,
                                             metrics.at("critic/rewards/mean").get<double>())) !=
            std::string::npos);
  }
  REQUIRE(rig.Metrics().size() == 2);
  launcher.Signal(SIGINT);
  REQUIRE(launcher.Wait() == 130);
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("the Python example drives a run on a port with the run's token, and not without") {
  ClusterRig rig;
  SetUpPython(rig);
  const std::string address = fmt::format("127.0.0.1:{}", FreePort("127.0.0.1"));
  rig.Set("cluster.listen", address);
  TestProcess& launcher = rig.Launch({"--start-paused"});
  WaitUntil("the run to wait", [&] {
    REQUIRE(launcher.running());
    return rig.Ctl({"status", "--json"}).output.find("\"paused\"") != std::string::npos;
  });
  TestProcess refused = Example(rig, "drive_training.py", {address});
  REQUIRE(refused.Wait() == 1);
  REQUIRE(refused.Output().find("UNAUTHENTICATED") != std::string::npos);
  TestProcess python = Example(rig, "drive_training.py", {address, rig.run_dir()});
  const int code = python.Wait();
  INFO(python.Output() << rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(rig.Metrics().size() == 2);
  launcher.Signal(SIGINT);
  REQUIRE(launcher.Wait() == 130);
}

TEST_CASE("a run is scored by the Python reward server") {
  ClusterRig rig(
      {.config = {{"reward.function", "remote"}, {"trainer.total_training_steps", "2"}}});
  SetUpPython(rig);
  const std::string address = "unix:" + (rig.dir() / "reward.sock").string();
  rig.Set("reward.service_address", address);
  TestProcess server = Example(rig, "reward_server.py", {address});
  WaitUntil("the reward server to listen",
            [&] { return server.Output().find("reward service on") != std::string::npos; });
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait for orders",
                    [](const auto& status) { return status.state() == "paused"; });
  const auto ran = rig.Ctl({"run", "1"});
  INFO(ran.output << server.Output() << rig.Log("launcher"));
  REQUIRE(ran.code == 0);
  // The numbers that Python counted are those in the texts that the store has.
  const nlohmann::json metrics = rig.Metrics().at(1);
  REQUIRE(metrics.at("reward/numbers/mean").get<double>() == Approx(MeanNumbers(rig, 1)));
  REQUIRE(metrics.at("reward/score/mean") <= 1.0);
  REQUIRE(server.running());
  launcher.Signal(SIGINT);
  REQUIRE(launcher.Wait() == 130);
  REQUIRE(rig.LeftBehind() == "");
}

}  // namespace
}  // namespace tandem::testing
