#include "deploy/launcher/launch_plan.h"

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <fmt/ranges.h>

#include "common/config/loaded_config.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

std::string Line(const LaunchPlan& plan, ProcessId id) {
  return fmt::format("{}", fmt::join(CommandLine(plan, id), " "));
}

TEST_CASE("every process gets its command line and its log") {
  const auto loaded = LoadConfig("", {"cluster.run_dir=/r", "trainer.device=cuda"});
  REQUIRE(loaded.ok());
  LaunchPlan plan = MakeLaunchPlan(loaded->config, "/b", "c.yaml", {"rollout.n=4", "data.seed=2"});
  REQUIRE(Line(plan, {Role::kController, 0}) ==
          "/b/tandem-controller --config c.yaml --set rollout.n=4 --set data.seed=2 --run-dir /r "
          "--listen unix:/r/controller.sock");
  plan.launch_id = "7-1";
  REQUIRE(Line(plan, {Role::kController, 0}).ends_with(" --launch-id 7-1"));
  plan.start_paused = true;
  REQUIRE(CommandLine(plan, {Role::kController, 0}).back() == "--start-paused");
  plan.log = "json";
  REQUIRE(Line(plan, {Role::kController, 0}).ends_with(" --start-paused --log json"));
  REQUIRE(Line(plan, {Role::kTrainer, 1}) ==
          "/b/tandem-trainer --controller unix:/r/controller.sock --role trainer --rank 1 "
          "--device cuda:1 --token-file /r/token");
  REQUIRE(LogPath(plan, {Role::kRollout, 1}) == "/r/logs/rollout-1.log");
  plan = MakeLaunchPlan(DefaultConfig(), "/b", "c.yaml", {});
  REQUIRE(Line(plan, {Role::kRollout, 0}).find("--role rollout --rank 0 --device cpu:0") !=
          std::string::npos);
}

TEST_CASE("a worker of an agent gets the agent's network, its host's device and its role's files") {
  const testing::TempDir dir;
  const std::string tls = dir.path().string();
  std::ofstream(tls + "/trainer-1.pem") << "own";
  LaunchPlan plan{.bin_dir = "/b",
                  .log_dir = "/l",
                  .listen = "head:7001",
                  .tls_cert = "c.pem",
                  .tls_key = "c.key",
                  .tls_ca = "ca.pem",
                  .network_flags = {"--node", "b", "--interface", "eth0"},
                  .devices = {{{Role::kTrainer, 1}, "cuda:0"}, {{Role::kRollout, 1}, "cuda:1"}}};
  REQUIRE(Line(plan, {Role::kTrainer, 1}) ==
          "/b/tandem-trainer --controller head:7001 --role trainer --rank 1 --device cuda:0 "
          "--tls-cert c.pem --tls-key c.key --tls-ca ca.pem --node b --interface eth0");
  REQUIRE(LogPath(plan, {Role::kRollout, 1}) == "/l/rollout-1.log");
  plan.tls_dir = tls;
  plan.network_flags.clear();
  const std::string ca = " --tls-ca " + tls + "/ca.pem";
  REQUIRE(Line(plan, {Role::kTrainer, 1})
              .ends_with(fmt::format(" --device cuda:0 --tls-cert {0}/trainer-1.pem --tls-key "
                                     "{0}/trainer-1.key --tls-ca {0}/ca.pem",
                                     tls)));
  REQUIRE(Line(plan, {Role::kRollout, 1})
              .ends_with(fmt::format(" --device cuda:1 --tls-cert {0}/rollout.pem --tls-key "
                                     "{0}/rollout.key --tls-ca {0}/ca.pem",
                                     tls)));
}

TEST_CASE("a launcher starts its controller first, then trainers and rollouts by turns") {
  const auto text = [](const Topology& topology) {
    std::string all;
    for (const ProcessId& id : ProcessesOf(LaunchPlan{.topology = topology}))
      all += id.ToString() + " ";
    return all;
  };
  REQUIRE(text({.trainers = 2, .rollouts = 2}) ==
          "controller trainer 0 rollout 0 trainer 1 rollout 1 ");
  REQUIRE(text({.trainers = 1, .rollouts = 2, .apart = true}) ==
          "controller trainer 0 rollout 0 rollout 1 ");
}

TEST_CASE("a launch's sockets are those of its controller, its ranks and their groups") {
  const auto loaded = LoadConfig("", {"cluster.run_dir=/r", "cluster.hybrid_engine=false",
                                      "cluster.trainers=2", "cluster.rollouts=3"});
  REQUIRE(loaded.ok());
  const LaunchPlan plan = MakeLaunchPlan(loaded->config, "/b", "c.yaml", {});
  for (const char* own :
       {"controller.sock", "trainer-0.sock", "rollout-2.sock", "pair-2.sock", "group-12.sock"}) {
    INFO(own);
    REQUIRE(IsSocketOf(plan, own));
  }
  for (const char* other : {"trainer-2.sock", "rollout-12.sock", "pair-1.sock.old", "proxy.sock",
                            "group-1.txt", "trainer-0.address"}) {
    INFO(other);
    REQUIRE_FALSE(IsSocketOf(plan, other));
  }
}

TEST_CASE("workers that share a device are given the same one, others one of their own") {
  const auto device = [](const std::vector<std::string>& overrides, const ProcessId& id) {
    const auto loaded = LoadConfig("", overrides);
    REQUIRE(loaded.ok());
    const std::string line = Line(MakeLaunchPlan(loaded->config, "/b", "c.yaml", {}), id);
    const size_t at = line.find("--device ") + 9;
    return line.substr(at, line.find(' ', at) - at);
  };
  const std::vector<std::string> colocated = {"cluster.run_dir=/r", "cluster.trainers=2"};
  REQUIRE(device(colocated, {Role::kTrainer, 1}) == "cpu:1");
  REQUIRE(device(colocated, {Role::kRollout, 1}) == "cpu:1");
  const std::vector<std::string> apart = {"cluster.run_dir=/r", "cluster.trainers=2",
                                          "cluster.rollouts=3", "cluster.hybrid_engine=false",
                                          "trainer.device=cuda"};
  REQUIRE(device(apart, {Role::kTrainer, 1}) == "cuda:1");
  REQUIRE(device(apart, {Role::kRollout, 0}) == "cuda:2");
  REQUIRE(device(apart, {Role::kRollout, 2}) == "cuda:4");
}

TEST_CASE("every process is told its log, and when that begins anew") {
  const auto loaded =
      LoadConfig("", {"cluster.run_dir=/r", "cluster.log_max_mb=5", "cluster.log_files_to_keep=2"});
  REQUIRE(loaded.ok());
  LaunchPlan plan = MakeLaunchPlan(loaded->config, "/b", "c.yaml", {});
  plan.controller_env = {{"NOTIFY_SOCKET", "@x"}};
  auto env = Environment(plan, {Role::kTrainer, 1});
  REQUIRE(env == std::map<std::string, std::string>{{"TANDEM_LOG_FILE", "/r/logs/trainer-1.log"},
                                                    {"TANDEM_LOG_MAX_BYTES", "5242880"},
                                                    {"TANDEM_LOG_FILES_TO_KEEP", "2"}});
  env = Environment(plan, {Role::kController, 0});
  REQUIRE(env.at("NOTIFY_SOCKET") == "@x");
  REQUIRE(env.at("TANDEM_LOG_FILE") == "/r/logs/controller-0.log");
}

TEST_CASE("a stopped launch says what the next one does") {
  const testing::TempDir dir;
  const std::string folder = dir.path() / "checkpoints";
  const auto hint = [&](const std::string& setting) {
    const auto loaded = LoadConfig("", {"trainer.default_local_dir=" + folder, setting});
    REQUIRE(loaded.ok());
    return ResumeHint(MakeLaunchPlan(loaded->config, "/b", "c.yaml", {}));
  };
  REQUIRE(hint("trainer.resume_mode=auto")
              .ends_with("begins from the start: it has no checkpoint yet"));
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/latest") << "step_1";
  REQUIRE(hint("trainer.resume_mode=auto").ends_with("resumes from its newest checkpoint"));
  std::ofstream(folder + "/finished") << "1";
  REQUIRE(hint("trainer.resume_mode=auto").find("starts over, as it is finished") !=
          std::string::npos);
  // The same configuration with more steps than the run has made goes on.
  REQUIRE(hint("trainer.total_training_steps=1").find("starts over, as it is finished") !=
          std::string::npos);
  REQUIRE(hint("trainer.total_training_steps=2").ends_with("resumes from its newest checkpoint"));
  // With a limit of time nobody knows how many steps the next run makes: it is another run.
  REQUIRE(hint("trainer.max_seconds=60").find("starts over, as it is finished") !=
          std::string::npos);
  REQUIRE(hint("trainer.resume_mode=disable").find("follows trainer.resume_mode=disable") !=
          std::string::npos);
  REQUIRE(hint("weight_sync.check_only=true").empty());
}

TEST_CASE("only the launch that owns the run directory has finished its run") {
  const testing::TempDir dir;
  LaunchPlan plan{.run_dir = dir.path(),
                  .launch_id = "7-1",
                  .checkpoint_dir = dir.path(),
                  .resume_mode = "auto"};
  REQUIRE_FALSE(FinishedByThisLaunch(plan));
  // What an earlier launch has finished, before this one has taken it over.
  std::ofstream(dir.path() / "finished") << "3";
  std::ofstream(dir.path() / "launch") << "6-9";
  REQUIRE_FALSE(FinishedByThisLaunch(plan));
  std::ofstream(dir.path() / "launch") << "7-1";
  REQUIRE(FinishedByThisLaunch(plan));
  plan.resume_mode = "";
  REQUIRE_FALSE(FinishedByThisLaunch(plan));
}

}  // namespace
}  // namespace tandem
