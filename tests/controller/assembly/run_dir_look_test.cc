#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "controller/assembly/dry_run.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

TEST_CASE("A folder is found to be writable without a trace", "[run_dir]") {
  const testing::TempDir dir;
  const fs::path deep = dir.path() / "runs" / "a" / "b";
  REQUIRE(CheckWritable(deep.string()).ok());
  REQUIRE_FALSE(fs::exists(dir.path() / "runs"));
  std::ofstream(dir.path() / "kept") << "text";
  REQUIRE(CheckWritable(dir.path().string()).ok());
  REQUIRE(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("A folder that cannot be made is refused, and nothing of it is left", "[run_dir]") {
  const testing::TempDir dir;
  std::ofstream(dir.path() / "file") << "text";
  const absl::Status through = CheckWritable((dir.path() / "file" / "run").string());
  REQUIRE(absl::IsPermissionDenied(through));
  REQUIRE(through.message().find("cannot make the folder") != std::string::npos);
  REQUIRE(absl::IsPermissionDenied(CheckWritable("/proc/run")));
  REQUIRE_FALSE(CheckWritable("/proc").ok());  // there, but takes no file
}

TEST_CASE("A launcher or controller at work in a run directory is told by its lock", "[run_dir]") {
  const testing::TempDir dir;
  const std::string run_dir = dir.path().string();
  REQUIRE(CheckNobodyThere(run_dir + "/nowhere").ok());
  for (const std::string who : {"launcher", "controller"}) {
    INFO(who);
    const std::string path = run_dir + "/" + who + ".lock";
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    REQUIRE(CheckNobodyThere(run_dir).ok());  // left by a run that has ended
    REQUIRE(flock(fd, LOCK_EX | LOCK_NB) == 0);
    const absl::Status held = CheckNobodyThere(run_dir);
    REQUIRE(absl::IsAlreadyExists(held));
    REQUIRE(held.message().find("another " + who + " is running in " + run_dir) !=
            std::string::npos);
    close(fd);
    REQUIRE(CheckNobodyThere(run_dir).ok());
  }
}

}  // namespace
}  // namespace tandem
