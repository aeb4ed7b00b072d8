// The launcher's --slurm with scripts in place of Slurm's programs, which run everything here: the
// nodes are addresses of this host. tests/cluster has a real Slurm.
#include <csignal>

#include "common/process/exit_code.h"
#include "tests/deploy/launcher/script_run.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;
using testing::ScriptRun;
using testing::ScriptRunOptions;

constexpr char kSrun[] = R"(#!/bin/bash
while [ "$1" != /bin/sh ]; do
  case "$1" in --nodelist=*) export SLURMD_NODENAME="${1#*=}" ;; esac
  shift
done
exec "$@"
)";

// Reports a requeue as an event, after what it says on its stdout.
constexpr char kScontrol[] = R"(#!/bin/bash
case "$1" in
  show) printf '%s\n' $NODES ;;
  requeue) echo "tandem-scontrol requeues-$2 0" >"$EVENTS" ;;
esac
)";

ScriptRunOptions InJob(const std::vector<std::string>& changes = {}) {
  ScriptRunOptions options{
      .flags = {"--slurm", "--set", "trainer.nnodes=2", "cluster.trainers=2", "cluster.rollouts=2"},
      .programs = {{"srun", kSrun}, {"scontrol", kScontrol}},
      .env = {{"SLURM_JOB_ID", "7"},
              {"SLURM_JOB_NODELIST", "127.0.0.[1-2]"},
              {"SLURMD_NODENAME", "127.0.0.1"},
              {"NODES", "127.0.0.1 127.0.0.2"}}};
  options.flags.insert(options.flags.end(), changes.begin(), changes.end());
  return options;
}

// The value of a flag of a command line.
std::string Value(const std::string& arguments, const std::string& flag) {
  const size_t at = arguments.find(flag + " ");
  if (at == std::string::npos) return "";
  const size_t begin = at + flag.size() + 1;
  return arguments.substr(begin, arguments.find_first_of(" \n", begin) - begin);
}

void EndAgents(const ScriptRun& run) {
  for (const char* agent : {"agent-0", "agent-1"}) kill(run.pid(agent), SIGUSR1);
}

TEST_CASE("a job has a controller, and an agent on each node that finds it with certificates") {
  ScriptRun run(InJob());
  run.WaitForAll(3);
  const std::string controller = run.Arguments("controller");
  INFO(controller);
  const std::string address = Value(controller, "--listen");
  REQUIRE(address.starts_with("127.0.0."));
  const std::string certs = run.dir() + "/run/slurm-certs";
  REQUIRE(Has(controller, "--set cluster.tls.cert=" + certs + "/controller.pem"));
  REQUIRE(Value(controller, "--launch-id").starts_with("slurm-7-"));
  for (const int host : {0, 1}) {
    const std::string agent = run.Arguments("agent-" + std::to_string(host));
    INFO(agent);
    REQUIRE(Value(agent, "--controller") == address);
    REQUIRE(Value(agent, "--hosts") == "2");
    REQUIRE(Value(agent, "--node") == "127.0.0." + std::to_string(host + 1));
    REQUIRE(Value(agent, "--tls-dir") == certs);
    REQUIRE(Value(agent, "--grace") == "5");  // the launcher's
  }
  REQUIRE(testing::fs::exists(certs + "/agent.pem"));
  kill(run.pid("controller"), SIGUSR1);
  EndAgents(run);
  REQUIRE(run.Wait() == 0);
  run.WaitUntilNobodyIsLeft();
  REQUIRE(run.File("run/logs/agent-127.0.0.2.log") == "tandem-agent-1 is here\n");
}

TEST_CASE("before the time limit a run saves, and its job begins anew as the same launch") {
  ScriptRun run(InJob());
  run.WaitForAll(3);
  const std::string launch = Value(run.Arguments("controller"), "--launch-id");
  std::ofstream(run.dir() + "/run/launch") << launch;  // as the controller does
  kill(run.launcher(), SIGUSR1);
  REQUIRE(run.Event() == "controller stopped");
  EndAgents(run);
  REQUIRE(run.Event() == "scontrol requeues-7");
  REQUIRE(run.Wait() == 0);
  run.WaitUntilNobodyIsLeft();
  const std::string said = run.File("err");
  INFO(said);
  REQUIRE(Has(said, "the time of this job is over soon"));
  REQUIRE(Has(said, "Job 7 begins anew, from the start"));
  run.StartAgain(InJob().flags, {{"SLURM_RESTART_COUNT", "1"}});
  run.WaitForAll(3);
  REQUIRE(Value(run.Arguments("controller"), "--launch-id") == launch);
}

TEST_CASE("a job that ends where it began, time after time, does not begin anew for ever") {
  ScriptRun run(InJob());
  for (int life = 0;; ++life) {
    run.WaitForAll(3);
    kill(run.launcher(), SIGUSR1);
    REQUIRE(run.Event() == "controller stopped");
    EndAgents(run);
    if (life == 3) break;
    REQUIRE(run.Event() == "scontrol requeues-7");
    REQUIRE(run.Wait() == 0);
    run.StartAgain(InJob().flags, {{"SLURM_RESTART_COUNT", std::to_string(life + 1)}});
  }
  REQUIRE(run.Wait() == kExitInternal);
  INFO(run.File("err"));
  REQUIRE(Has(run.File("err"), "has begun anew 3 times without a first checkpoint"));
}

TEST_CASE("a lost agent is started again, and agents that stay lost let the job begin anew") {
  ScriptRun run(InJob({"cluster.max_restarts=1"}));
  run.WaitForAll(3);
  kill(run.pid("agent-1"), SIGKILL);
  REQUIRE(run.Event() == "agent-1 up");
  kill(run.pid("agent-1"), SIGKILL);
  REQUIRE(run.Event() == "controller stopped");
  kill(run.pid("agent-0"), SIGUSR1);
  REQUIRE(run.Event() == "scontrol requeues-7");
  REQUIRE(run.Wait() == 0);
  INFO(run.File("err"));
  REQUIRE(Has(run.File("err"), "all restarts of an agent are used"));
}

TEST_CASE("an agent that fails by itself ends the run with its code") {
  ScriptRun run(InJob());
  run.WaitForAll(3);
  kill(run.pid("agent-1"), SIGUSR2);
  REQUIRE(run.Event() == "controller stopped");
  kill(run.pid("agent-0"), SIGUSR1);
  REQUIRE(run.Wait() == kExitInternal);
  INFO(run.File("err"));
  REQUIRE(Has(run.File("err"), "agent 1 failed: exit code 70"));
}

TEST_CASE("what fails by itself, and what a user stops, does not begin anew") {
  {
    ScriptRun failed(InJob());
    failed.WaitForAll(3);
    kill(failed.pid("controller"), SIGUSR2);
    EndAgents(failed);
    REQUIRE(failed.Wait() == kExitInternal);
  }
  ScriptRun stopped(InJob());
  stopped.WaitForAll(3);
  kill(stopped.launcher(), SIGTERM);
  REQUIRE(stopped.Event() == "controller stopped");
  EndAgents(stopped);
  REQUIRE(stopped.Wait() == 128 + SIGTERM);
  REQUIRE_FALSE(testing::fs::exists(stopped.dir() + "/run/requeues"));
}

TEST_CASE("a job of one node needs no agent") {
  ScriptRunOptions options = InJob();
  options.flags = {"--slurm"};
  options.env["NODES"] = "127.0.0.1";
  ScriptRun run(options);
  run.WaitForAll(3);
  REQUIRE(run.pid("trainer-0") > 0);
  REQUIRE(Has(run.Arguments("controller"), "--listen unix:"));
  kill(run.pid("controller"), SIGUSR1);
  REQUIRE(run.Wait() == 0);
}

// What a launcher says that refuses with 64 or 66 before anything starts.
std::string Refusal(const ScriptRunOptions& options) {
  ScriptRun run(options);
  const int code = run.Wait();
  const std::string said = run.File("err");
  INFO(said);
  REQUIRE((code == kExitRefused || code == kExitNoInput));
  REQUIRE_FALSE(testing::fs::exists(run.dir() + "/run"));
  return said;
}

TEST_CASE("a launch that Slurm cannot carry is refused before anything starts") {
  ScriptRunOptions outside = InJob();
  outside.env["SLURM_JOB_ID"] = "";
  REQUIRE(Has(Refusal(outside), "this is no job of Slurm's"));
  ScriptRunOptions crowded = InJob();
  crowded.env["NODES"] = "127.0.0.1 127.0.0.2 127.0.0.3";
  REQUIRE(Has(Refusal(crowded), "the job has 3 node(s)"));
  ScriptRunOptions bare = InJob();
  bare.programs.clear();
  bare.env["PATH"] = "/nowhere";
  REQUIRE(Has(Refusal(bare), "there is no program scontrol in the folders of PATH (/nowhere)"));
}

TEST_CASE("a controller that other nodes do not reach is refused") {
  ScriptRun run(InJob({"cluster.listen=127.0.0.1:20001"}));
  REQUIRE(run.Wait() == kExitRefused);
  REQUIRE(Has(run.File("err"), "the other nodes of the job (127.0.0.2) do not reach it"));
}

TEST_CASE("a job of one node that the launcher is not on has an agent there") {
  ScriptRunOptions options = InJob();
  options.flags = {"--slurm"};
  options.env["NODES"] = "127.0.0.2";
  ScriptRun run(options);
  run.WaitForAll(2);
  REQUIRE(Value(run.Arguments("agent-0"), "--node") == "127.0.0.2");
  kill(run.pid("controller"), SIGUSR1);
  kill(run.pid("agent-0"), SIGUSR1);
  REQUIRE(run.Wait() == 0);
}

TEST_CASE("a node that does not see the run directory's file ends the run with its reason") {
  ScriptRunOptions options = InJob();
  // The nodes look for the file elsewhere, and do not wait between two looks.
  options.programs["sleep"] = "#!/bin/sh\n[ \"$1\" = 1 ] || exec /bin/sleep \"$@\"\n";
  const std::string blind = R"(#!/bin/bash
all=()
for word in "$@"; do
  case "$word" in */run/shared-*) word=/nowhere/shared ;; esac
  all+=("$word")
done
exec "$(dirname "$0")/srun-that-sees" "${all[@]}"
)";
  options.programs["srun-that-sees"] = kSrun;
  options.programs["srun"] = blind;
  ScriptRun run(options);
  REQUIRE(run.Event() == "controller up");
  REQUIRE(run.Wait() == kExitRefused);
  const std::string said = run.File("err");
  INFO(said);
  REQUIRE(Has(said, "does not see /nowhere/shared"));
  REQUIRE(Has(said, "cannot run: exit code 64"));
}

}  // namespace
}  // namespace tandem
