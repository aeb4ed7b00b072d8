#include "common/process/files/confined_path.h"

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing::Says;

struct ConfinedFixture {
  testing::TempDir dir;
  std::string run = dir.path() / "run", outside = dir.path() / "outside";

  ConfinedFixture() {
    fs::create_directories(run + "/kept/step_1");
    fs::create_directories(outside);
    std::ofstream(outside + "/file") << "text";
  }
  absl::Status Check(const std::string& path, PathLookup lookup) const {
    return CheckConfined("the path", path, {run}, lookup);
  }
};

// Lets every call of openat2 by this process end with `error`, as filters of containers do.
bool RefuseOpenat2(int error) {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = std::size(rules), .filter = rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

bool HasOpenat2() {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  const long fd = syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how));
  if (fd >= 0) close(static_cast<int>(fd));
  return fd >= 0;
}

const PathLookup kBoth[] = {PathLookup::kAny, PathLookup::kByPart};

}  // namespace

TEST_CASE("A path inside is accepted, whether it exists or is to be made", "[confined]") {
  ConfinedFixture f;
  for (const PathLookup lookup : kBoth) {
    for (const char* inside : {"", "/", "/kept", "/kept/step_1/", "/kept//step_2", "/./new/deep/er",
                               "/group-7.sock", "/..name", "/a..b"}) {
      INFO(inside);
      REQUIRE(f.Check(f.run + inside, lookup).ok());
    }
  }
  REQUIRE(CheckConfined("the path", f.outside + "/x", {f.run, f.outside}).ok());
}

TEST_CASE("A path outside is refused with the folders and the remedy", "[confined]") {
  ConfinedFixture f;
  for (const PathLookup lookup : kBoth) {
    for (const std::string& path :
         {std::string("/etc/passwd"), f.outside, f.run + "-not", f.run + "x/y",
          f.dir.path().string(), std::string("relative"), std::string("/"), std::string(),
          f.run + std::string("/a\0b", 4)}) {
      INFO(path);
      const absl::Status refused = f.Check(path, lookup);
      REQUIRE(absl::IsInvalidArgument(refused));
      REQUIRE(Says(refused, "the path " + path));
      REQUIRE(Says(refused, f.run));
      REQUIRE(Says(refused, "configuration"));
    }
    REQUIRE(absl::IsInvalidArgument(CheckConfined("the path", f.run, {}, lookup)));
    REQUIRE(absl::IsInvalidArgument(CheckConfined("the path", f.run, {""}, lookup)));
  }
}

TEST_CASE("A part \"..\" is refused wherever it leads", "[confined]") {
  ConfinedFixture f;
  for (const PathLookup lookup : kBoth) {
    for (const char* path : {"/..", "/../outside/file", "/kept/../kept", "/kept/../../outside",
                             "/new/../../outside", "/kept/.."}) {
      INFO(path);
      REQUIRE(absl::IsInvalidArgument(f.Check(f.run + path, lookup)));
    }
  }
}

TEST_CASE("A symbolic link that leads outside is refused", "[confined]") {
  ConfinedFixture f;
  fs::create_symlink(f.outside, f.run + "/absolute");
  fs::create_symlink("../outside", f.run + "/relative");
  fs::create_symlink("../nobody/there", f.run + "/dangling");
  fs::create_symlink("absolute", f.run + "/chain");
  fs::create_symlink("loop", f.run + "/loop");
  fs::create_symlink(f.outside + "/file", f.run + "/kept/file");
  for (const PathLookup lookup : kBoth) {
    for (const char* path :
         {"/absolute", "/absolute/file", "/absolute/new", "/relative/file", "/relative/new/deep",
          "/dangling", "/dangling/x", "/chain/file", "/loop", "/loop/x", "/kept/file"}) {
      INFO(path);
      const absl::Status refused = f.Check(f.run + path, lookup);
      REQUIRE(absl::IsPermissionDenied(refused));
      REQUIRE(Says(refused, "symbolic link"));
    }
  }
}

TEST_CASE("A link that stays inside is followed where the kernel can tell", "[confined]") {
  ConfinedFixture f;
  fs::create_symlink("kept", f.run + "/link");
  REQUIRE(absl::IsPermissionDenied(f.Check(f.run + "/link/step_1", PathLookup::kByPart)));
  const absl::Status followed = f.Check(f.run + "/link/step_1", PathLookup::kAny);
  if (HasOpenat2()) {
    REQUIRE(followed.ok());
  } else {  // a kernel before 5.6, or a filter of system calls
    REQUIRE(absl::IsPermissionDenied(followed));
  }
}

TEST_CASE("A filter of system calls that knows no openat2 opens no way out", "[confined]") {
  ConfinedFixture f;
  fs::create_symlink(f.outside, f.run + "/out");
  for (const int error : {EPERM, ENOSYS}) {
    const pid_t child = fork();
    if (child == 0) {
      if (!RefuseOpenat2(error)) _exit(99);
      const bool inside = f.Check(f.run + "/kept/step_2", PathLookup::kAny).ok();
      const bool out = absl::IsPermissionDenied(f.Check(f.run + "/out/file", PathLookup::kAny));
      _exit((inside ? 1 : 0) + (out ? 2 : 0));
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 3);
  }
}

TEST_CASE("Links of /proc that jump anywhere are refused", "[confined]") {
  for (const PathLookup lookup : kBoth) {
    for (const char* path : {"/proc/self/root/etc", "/proc/self/cwd/x", "/proc/self/fd/0"}) {
      INFO(path);
      REQUIRE(absl::IsPermissionDenied(CheckConfined("the path", path, {"/proc/self"}, lookup)));
    }
  }
}

TEST_CASE("The folder's own name is the configuration's: links and .. in it count", "[confined]") {
  ConfinedFixture f;
  fs::create_symlink(f.run, f.dir.path() / "alias");
  const std::string alias = f.dir.path() / "alias", dotted = f.outside + "/../run";
  for (const PathLookup lookup : kBoth) {
    REQUIRE(CheckConfined("the path", alias + "/kept", {alias}, lookup).ok());
    REQUIRE(CheckConfined("the path", dotted + "/kept", {dotted}, lookup).ok());
    REQUIRE_FALSE(CheckConfined("the path", dotted + "/../outside", {dotted}, lookup).ok());
    REQUIRE(CheckConfined("the path", "runs/a/x.sock", {"runs/a"}, lookup).ok());
    REQUIRE(CheckConfined("the path", f.run + "/gone/x", {f.run + "/gone"}, lookup).ok());
  }
}

}  // namespace tandem
