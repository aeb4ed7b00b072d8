// Programs of two builds in one job: a copy of a program with another digest of the sources counts
// as another build for every other program.
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/e2e/recovery.h"
#include "tests/support/build_folder.h"

namespace tandem::testing {
namespace {

const char* const kPrograms[] = {"tandem-controller", "tandem-trainer",    "tandem-rollout",
                                 "tandem-launcher",   "tandem-agent",      "tandem-parity",
                                 "tandemctl",         "tandem-config-docs"};

struct EndedProgram {
  int code = 0;
  std::string output;
};

EndedProgram RunProgram(const std::vector<std::string>& argv) {
  TempDir dir;
  TestProcess process({.argv = argv, .output = (dir.path() / "output").string()});
  const int code = process.Wait();
  return {code, process.Output()};
}

// The digest of the sources that the build's own programs tell.
std::string Sources() {
  const std::string text = RunProgram({BuildFolder("bin") + "/tandem-rollout", "--version"}).output;
  const std::string before = ", sources ";
  const size_t at = text.find(before);
  REQUIRE(at != std::string::npos);
  return text.substr(at + before.size(), 16);
}

// The build's programs in `folder`, the rollout among them with `digest` for its sources.
void MakeOtherRollout(const std::filesystem::path& folder, const std::string& digest) {
  std::filesystem::create_directory(folder);
  for (const char* program : kPrograms) {
    std::filesystem::create_symlink(std::filesystem::path(BuildFolder("bin")) / program,
                                    folder / program);
  }
  std::string bytes = FileText(BuildFolder("bin") + "/tandem-rollout");
  const size_t at = bytes.find(Sources());
  REQUIRE(at != std::string::npos);
  bytes.replace(at, digest.size(), digest);
  REQUIRE(bytes.find(Sources()) == std::string::npos);
  std::filesystem::remove(folder / "tandem-rollout");
  std::ofstream(folder / "tandem-rollout", std::ios::binary) << bytes;
  std::filesystem::permissions(folder / "tandem-rollout", std::filesystem::perms::owner_all);
}

const std::string kOther = "0000111122223333";

TEST_CASE("every program tells its build") {
  for (const char* program : kPrograms) {
    INFO(program);
    const EndedProgram ended =
        RunProgram({fmt::format("{}/{}", BuildFolder("bin"), program), "--version"});
    REQUIRE(ended.code == 0);
    REQUIRE(ended.output.rfind(fmt::format("{} ", program), 0) == 0);
    REQUIRE(ended.output.find(", commit ") != std::string::npos);
    REQUIRE(ended.output.find(", sources " + Sources()) != std::string::npos);
  }
}

TEST_CASE("a worker of another build is refused, with both builds and the way out") {
  ClusterRig rig;
  MakeOtherRollout(rig.dir() / "other", kOther);
  rig.StartController();
  rig.UsePrograms(rig.dir() / "other");
  TestProcess& rollout = rig.StartRollout();
  const int code = rollout.Wait();
  INFO(rig.Log("rollout"));
  REQUIRE(code == 64);
  for (const std::string& text : {std::string("rollout 0 is of another build"), kOther, Sources(),
                                  std::string("cluster.allow_other_build=true")}) {
    INFO(text);
    REQUIRE(rig.Log("rollout").find(text) != std::string::npos);
  }
  REQUIRE(rig.Log("controller").find("Refused a worker: rollout 0 is of another build") !=
          std::string::npos);
}

TEST_CASE("cluster.allow_other_build lets it in, with a warning, and the run record has both") {
  ClusterRig rig(
      {.config = {{"cluster.allow_other_build", "true"}, {"trainer.total_training_steps", "1"}}});
  MakeOtherRollout(rig.dir() / "other", kOther);
  TestProcess& controller = rig.StartController();
  rig.StartTrainer();
  rig.UsePrograms(rig.dir() / "other");
  rig.StartRollout();
  const int code = controller.Wait();
  INFO(rig.Log("controller"));
  REQUIRE(code == 0);
  REQUIRE(rig.Log("controller").find("accepted because of cluster.allow_other_build") !=
          std::string::npos);
  REQUIRE(rig.Log("controller").find("trainer 0 is of another build") == std::string::npos);
  REQUIRE(rig.RunFile("report.html").find("; rollout 0: tandem ") != std::string::npos);
  REQUIRE(rig.RunFile("report.html").find(kOther) != std::string::npos);
}

}  // namespace
}  // namespace tandem::testing
