#include "deploy/launcher/slurm/step.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <sys/wait.h>

#include "tests/support/temp_dir.h"
#include "tests/support/test_process.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a step is one task on its node, beside others, with all that the job has there") {
  const std::vector<std::string> argv = StepCommand({.srun = "/usr/bin/srun",
                                                     .node = "n2",
                                                     .shared_file = "/r/shared",
                                                     .argv = {"/b/tandem-agent", "--hosts", "2"}});
  REQUIRE(argv.front() == "/usr/bin/srun");
  for (const char* flag : {"--nodes=1", "--ntasks=1", "--nodelist=n2", "--overlap", "--whole",
                           "--mem=0", "--cpu-bind=none", "--kill-on-bad-exit=0"}) {
    INFO(flag);
    REQUIRE(std::find(argv.begin(), argv.end(), flag) != argv.end());
  }
  REQUIRE(std::vector<std::string>(argv.end() - 4, argv.end()) ==
          std::vector<std::string>{"/r/shared", "/b/tandem-agent", "--hosts", "2"});
  REQUIRE(RequeueCommand("/usr/bin/scontrol", "7") ==
          std::vector<std::string>{"/usr/bin/scontrol", "requeue", "7"});
}

// Runs on this host what srun would run on the node "n2". A sleep takes no time.
struct Node {
  testing::TempDir dir;
  std::string output;

  int Run(const std::string& shared_file, const std::string& program) {
    const std::vector<std::string> step = StepCommand(
        {.srun = "srun", .node = "n2", .shared_file = shared_file, .argv = {program, "a b"}});
    const auto shell = std::find(step.begin(), step.end(), "/bin/sh");
    std::ofstream(dir.path() / "sleep") << "#!/bin/sh\n";
    fs::permissions(dir.path() / "sleep", fs::perms::owner_all);
    testing::ProcessOptions options{
        .argv = {shell, step.end()},
        .env = {{"PATH", dir.path().string() + ":/usr/bin:/bin"}, {"SLURMD_NODENAME", "n2"}},
        .output = dir.path() / "output"};
    testing::TestProcess process(std::move(options));
    const int code = process.Wait();
    output = testing::FileText(dir.path() / "output");
    return code;
  }
};

TEST_CASE("a node runs the program if it sees the shared file, else it says what it lacks") {
  Node node;
  const std::string shared = node.dir.path() / "shared", program = node.dir.path() / "program";
  std::ofstream(program) << "#!/bin/sh\necho \"[$1]\"; exit 7\n";
  REQUIRE(node.Run(shared, program) == 64);
  REQUIRE(testing::Has(node.output, "n2 does not see " + shared));
  REQUIRE(testing::Has(node.output, "set cluster.run_dir to a folder on a file system"));
  std::ofstream(shared) << "";
  REQUIRE(node.Run(shared, program) == 64);
  REQUIRE(testing::Has(node.output, "n2 has no program " + program));
  fs::permissions(program, fs::perms::owner_all);
  REQUIRE(node.Run(shared, program) == 7);
  REQUIRE(testing::Has(node.output, "[a b]"));
}

}  // namespace
}  // namespace tandem
