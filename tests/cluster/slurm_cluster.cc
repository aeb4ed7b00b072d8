#include "tests/cluster/slurm_cluster.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include <fmt/format.h>
#include <unistd.h>

#include "tests/support/build_folder.h"
#include "tests/support/patience.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

// A look costs a process of Slurm's: not as often as WaitUntil asks.
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(300);

// "7" of "JobState=RUNNING Restarts=7 ...".
std::string Field(const std::string& text, const std::string& name) {
  const size_t at = text.find(name + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 1;
  return text.substr(begin, text.find_first_of(" \n", begin) - begin);
}

[[noreturn]] void Skip(const std::string& reason) {
  std::fputs(("skipped: " + reason + "\n").c_str(), stderr);
  std::exit(77);
}

}  // namespace

bool JobState::ended() const {
  for (const char* last : {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}) {
    if (name == last) return true;
  }
  return false;
}

SlurmCluster& SlurmCluster::Shared() {
  static SlurmCluster cluster;
  return cluster;
}

SlurmCluster::SlurmCluster() : dir_(own_.path() / "c") {
  if (geteuid() != 0) Skip("a cluster of network namespaces needs root");
  for (const char* program : {"slurmctld", "slurmd", "munged", "ip"}) {
    if (std::system(fmt::format("command -v {} >/dev/null", program).c_str()) != 0) {
      Skip(fmt::format("{} is not installed (deploy/setup.sh --cluster)", program));
    }
  }
  std::string said;
  if (Script({"up", "3"}, {}, &said) == 0) return;
  if (Has(said, "lets root make no namespaces")) Skip("no namespaces here: " + said);
  throw std::runtime_error("no cluster: " + said);
}

SlurmCluster::~SlurmCluster() {
  std::string said;
  Script({"down"}, {}, &said);
}

int SlurmCluster::Script(const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& env,
                         std::string* output) {
  ProcessOptions options{.argv = {"deploy/slurm/local_cluster.sh", "--dir", dir_},
                         .env = env,
                         .output = own_.path() / fmt::format("{}.txt", ++calls_)};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  TestProcess process(options);
  const int code = process.Wait();
  *output = process.Output();
  return code;
}

std::string SlurmCluster::Run(const std::vector<std::string>& command) {
  std::vector<std::string> arguments = {"run"};
  arguments.insert(arguments.end(), command.begin(), command.end());
  std::string output;
  if (const int code = Script(arguments, {}, &output); code != 0) {
    throw std::runtime_error(fmt::format("{} ended with {}: {}", command[0], code, output));
  }
  return output;
}

void SlurmCluster::Do(const std::string& verb, const std::string& node) {
  std::string output;
  if (Script({verb, node}, {}, &output) != 0) {
    throw std::runtime_error(verb + " " + node + ": " + output);
  }
}

std::string SlurmCluster::Submit(const ClusterRig& rig,
                                 int nodes,
                                 const std::vector<std::string>& launcher_flags,
                                 const std::vector<std::string>& sbatch_flags) {
  const std::vector<std::string> flags = rig.ConfigFlags();  // --config FILE --set CHANGE...
  std::vector<std::string> arguments = {"run", "sbatch", "--parsable",
                                        fmt::format("--nodes={}", nodes),
                                        "--output=" + rig.launcher_log()};
  arguments.insert(arguments.end(), sbatch_flags.begin(), sbatch_flags.end());
  arguments.push_back("deploy/slurm/tandem.sbatch");
  arguments.insert(arguments.end(), flags.begin() + 1, flags.end());
  arguments.insert(arguments.end(), launcher_flags.begin(), launcher_flags.end());
  std::map<std::string, std::string> env = rig.env();
  env["TANDEM"] = std::filesystem::path(BuildFolder("bin")).parent_path();
  std::string output;
  if (Script(arguments, env, &output) != 0) throw std::runtime_error("sbatch: " + output);
  return output.substr(0, output.find_first_not_of("0123456789"));
}

JobState SlurmCluster::StateOf(const std::string& job) {
  const std::string text = Run({"scontrol", "show", "job", "--oneliner", job});
  return {.name = Field(text, "JobState"),
          .code = std::atoi(Field(text, "ExitCode").c_str()),
          .restarts = std::atoi(Field(text, "Restarts").c_str()),
          .nodes = Field(text, " NodeList")};
}

JobState SlurmCluster::WaitForEnd(const std::string& job) {
  JobState state;
  WaitUntil("the end of job " + job, [&] {
    absl::SleepFor(kBetweenLooks);
    state = StateOf(job);
    return state.ended();
  });
  return state;
}

void SlurmCluster::WaitForNode(const std::string& node) {
  WaitUntil(node, [&] {
    absl::SleepFor(kBetweenLooks);
    return Has(Run({"sinfo", "--noheader", "--format=%T", "--nodes=" + node}), "idle") &&
           !Has(Run({"sinfo", "--noheader", "--format=%T", "--nodes=" + node}), "*");
  });
}

}  // namespace tandem::testing
