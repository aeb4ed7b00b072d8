// The launcher program with scripts in place of controller and workers.
#include "tests/deploy/launcher/script_run.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing::ScriptRun;

TEST_CASE("a run whose controller ends well ends with 0 and leaves nobody behind") {
  ScriptRun run;
  run.WaitForAll(3);
  REQUIRE(run.File("run/pids.json").find(std::to_string(run.pid("trainer-0"))) !=
          std::string::npos);
  kill(run.pid("controller"), SIGUSR1);
  REQUIRE(run.Wait() == 0);
  run.WaitUntilNobodyIsLeft();
  REQUIRE(run.File("run/logs/rollout-0.log") == "tandem-rollout-0 is here\n");
}

TEST_CASE("a killed worker and a killed controller are started again") {
  ScriptRun run({.flags = {"--set", "cluster.trainers=2", "cluster.rollouts=2"}});
  run.WaitForAll(5);
  kill(run.pid("rollout-1"), SIGKILL);
  REQUIRE(run.Event() == "rollout-1 up");
  kill(run.pid("controller"), SIGKILL);
  REQUIRE(run.Event() == "controller up");
  kill(run.launcher(), SIGTERM);
  REQUIRE(run.Event() == "controller stopped");
  REQUIRE(run.Wait() == 143);
  run.WaitUntilNobodyIsLeft();
  REQUIRE(run.File("err").find("rollout 1 died: signal 9 (Killed); restart 1 of 3") !=
          std::string::npos);
  REQUIRE(run.File("run/logs/rollout-1.log") ==
          "tandem-rollout-1 is here\ntandem-rollout-1 is here\n");
}

TEST_CASE("a controller that fails ends the run with its code and its last words") {
  ScriptRun run;
  run.WaitForAll(3);
  kill(run.pid("controller"), SIGUSR2);
  REQUIRE(run.Wait() == 70);
  run.WaitUntilNobodyIsLeft();
  REQUIRE(run.File("err").find("no disk left") != std::string::npos);
}

TEST_CASE("the last words shown are of this launch, and a stopped run says how to resume") {
  ScriptRun run;
  run.WaitForAll(3);
  kill(run.launcher(), SIGINT);
  REQUIRE(run.Wait() == 130);
  run.WaitUntilNobodyIsLeft();
  // Nothing was trained, so there is no checkpoint to resume from.
  REQUIRE(run.File("err").find("Started again with the same configuration, the run begins from the "
                               "start: it has no checkpoint yet") != std::string::npos);
  const std::string log = run.dir() + "/run/logs/controller-0.log";
  std::ofstream(log, std::ios::app) << "said in an earlier launch\n";
  run.StartAgain();
  run.WaitForAll(3);
  kill(run.pid("controller"), SIGUSR2);
  REQUIRE(run.Wait() == 70);
  run.WaitUntilNobodyIsLeft();
  REQUIRE(run.File("err").find("no disk left") != std::string::npos);
  REQUIRE(run.File("err").find("said in an earlier launch") == std::string::npos);
  REQUIRE(run.File("run/logs/controller-0.log").find("said in an earlier") != std::string::npos);
}

TEST_CASE("restarts that are used up end the run with 70") {
  ScriptRun run({.flags = {"--set", "cluster.max_restarts=0"}});
  run.WaitForAll(3);
  kill(run.pid("trainer-0"), SIGUSR2);
  REQUIRE(run.Wait() == 70);
  run.WaitUntilNobodyIsLeft();
  REQUIRE(run.File("err").find("are used (cluster.max_restarts = 0)") != std::string::npos);
}

TEST_CASE("children do not outlive a launcher that is killed") {
  setenv("PLAIN", "1", 1);
  ScriptRun run;
  unsetenv("PLAIN");
  run.WaitForAll(3);
  kill(run.launcher(), SIGKILL);
  REQUIRE(run.Wait() == -SIGKILL);
  run.WaitUntilNobodyIsLeft();
}

TEST_CASE("a config that cannot work ends with 64 before anything starts") {
  ScriptRun run({.flags = {"--set", "cluster.trainers=2", "cluster.rollouts=1"}});
  REQUIRE(run.Wait() == 64);
  REQUIRE(run.File("err").find("trainer rank 1 has no partner rollout rank 1") !=
          std::string::npos);
  REQUIRE_FALSE(fs::exists(run.dir() + "/run"));
}

TEST_CASE("an interface is refused where no other host has to reach a worker") {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--interface", "lo"}, {"--interface", "lo", "--dry-run"}}) {
    ScriptRun run({.flags = flags});
    REQUIRE(run.Wait() == 64);
    REQUIRE(run.File("err").starts_with("--interface lo: all workers are on this host"));
    REQUIRE_FALSE(fs::exists(run.dir() + "/run"));
  }
}

TEST_CASE("the commands of agents that a user shall start can be typed as they are") {
  const testing::TempDir dir;
  const std::string run_dir = dir.path() / "a run's";
  ScriptRun run({.flags = {"--agents", "1", "--interface", "lo", "--set",
                           "cluster.run_dir=" + run_dir, "cluster.listen=127.0.0.1:20001"}});
  run.WaitForAll(1);
  const std::string said = run.File("err");
  INFO(said);
  REQUIRE(said.find(" --interface lo ") != std::string::npos);
  REQUIRE(said.find(" --log-dir '" + dir.path().string() + "/a run'\\''s/logs' --grace 5 ") !=
          std::string::npos);
  kill(run.pid("controller"), SIGUSR1);
  REQUIRE(run.Wait() == 0);
}

TEST_CASE("a model type that nobody can run ends with 65 before anything starts") {
  ScriptRun run({.model_type = "mamba"});
  REQUIRE(run.Wait() == 65);
  REQUIRE(run.File("err").find("model_type mamba is not supported") != std::string::npos);
  REQUIRE_FALSE(fs::exists(run.dir() + "/run"));
}

TEST_CASE("a second launcher in the same directory is refused") {
  ScriptRun run;
  run.WaitForAll(3);
  ScriptRun other({.flags = {"--set", "cluster.run_dir=" + run.dir() + "/run"}});
  REQUIRE(other.Wait() == 64);
  REQUIRE(other.File("err").find("is in use (a launcher, process ") != std::string::npos);
}

TEST_CASE("a missing program is told by its name and ends the run") {
  ScriptRun run({.flags = {"--set", "rollout.n=2"}});
  run.WaitForAll(3);
  fs::remove(run.dir() + "/tandem-trainer");
  kill(run.pid("trainer-0"), SIGKILL);
  REQUIRE(run.Wait() == 64);
  run.WaitUntilNobodyIsLeft();
  REQUIRE(run.File("err").find("tandem-trainer: No such file or directory") != std::string::npos);
}

}  // namespace
}  // namespace tandem
