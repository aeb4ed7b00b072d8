#include "common/process/files/private_files.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/process/local_socket.h"
#include "tests/support/file_mode.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::ModeOf;
using testing::Says;
using testing::UmaskOf;

constexpr uid_t kAnother = 12'345;

TEST_CASE("A private folder is its owner's alone under any umask", "[private_files]") {
  const testing::TempDir dir;
  for (const mode_t mask : {0000, 0002, 0022, 0077}) {
    const UmaskOf umask(mask);
    const std::string run = dir.path() / std::to_string(mask) / "project" / "run";
    REQUIRE(MakePrivateFolder(run).ok());
    REQUIRE(ModeOf(run) == 0700);
    REQUIRE(MakePrivateFolder(run + "/").ok());
    REQUIRE(ModeOf(run) == 0700);
  }
}

TEST_CASE("A private folder that was open to others is closed", "[private_files]") {
  const testing::TempDir dir;
  for (const mode_t mode : {0755, 0777, 02775, 0750}) {
    const std::string run = dir.path() / std::to_string(mode);
    mkdir(run.c_str(), 0700);
    chmod(run.c_str(), mode);
    REQUIRE(MakePrivateFolder(run).ok());
    REQUIRE((ModeOf(run) & 0777) == 0700);
  }
  const std::string link = dir.path() / "link";
  mkdir((dir.path() / "real").c_str(), 0700);
  chmod((dir.path() / "real").c_str(), 0777);
  std::filesystem::create_symlink(dir.path() / "real", link);
  REQUIRE(MakePrivateFolder(link).ok());
  REQUIRE(ModeOf(dir.path() / "real") == 0700);
}

TEST_CASE("A private folder under a file is refused with the reason", "[private_files]") {
  const testing::TempDir dir;
  std::ofstream(dir.path() / "file") << "text";
  REQUIRE(absl::IsPermissionDenied(MakePrivateFolder(dir.path() / "file")));
  REQUIRE(Says(MakePrivateFolder(dir.path() / "file" / "run"), "file"));
}

TEST_CASE("The folder of a socket keeps its readers and loses its writers", "[private_files]") {
  const testing::TempDir dir;
  const auto after = [&](mode_t mode) {
    const std::string folder = dir.path() / std::to_string(mode);
    mkdir(folder.c_str(), 0700);
    chmod(folder.c_str(), mode);
    REQUIRE(MakeSocketFolder(folder).ok());
    return ModeOf(folder);
  };
  REQUIRE(after(0755) == 0755);
  REQUIRE(after(0775) == 0755);
  REQUIRE(after(0777) == 0755);
  REQUIRE(after(01777) == 01777);  // as /tmp: nobody removes what is not theirs
  REQUIRE(MakeSocketFolder(dir.path() / "new").ok());
  REQUIRE(ModeOf(dir.path() / "new") == 0700);
}

// In a process of its own, as another user: prints the two answers. Only root can become another.
int AnswersAs(uid_t user, const std::string& folder) {
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(user) != 0) _exit(99);
    const absl::Status as_run = MakePrivateFolder(folder), as_socket = MakeSocketFolder(folder);
    _exit((absl::IsPermissionDenied(as_run) ? 1 : 0) +
          (absl::IsPermissionDenied(as_socket) ? 2 : 0));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("A folder that another user can write in, and owns, is refused", "[private_files]") {
  if (geteuid() != 0) return;
  const testing::TempDir dir;
  chmod(dir.path().c_str(), 0755);
  const std::string theirs = dir.path() / "theirs", roots = dir.path() / "roots";
  mkdir(theirs.c_str(), 0700);
  chmod(theirs.c_str(), 0777);
  REQUIRE(chown(theirs.c_str(), kAnother, kAnother) == 0);
  mkdir(roots.c_str(), 0700);
  chmod(roots.c_str(), 0777);
  REQUIRE(AnswersAs(kAnother + 1, theirs) == 3);
  REQUIRE(AnswersAs(kAnother + 1, roots) == 3);
  REQUIRE(AnswersAs(kAnother, theirs) == 0);
  REQUIRE(ModeOf(theirs) == 0700);
}

TEST_CASE("A private file is its owner's alone, and replaces a link", "[private_files]") {
  const testing::TempDir dir;
  const UmaskOf umask(0);
  const std::string path = dir.path() / "token", elsewhere = dir.path() / "elsewhere";
  std::ofstream(elsewhere) << "untouched";
  std::filesystem::create_symlink(elsewhere, path);
  REQUIRE(WritePrivateFile(path, "secret").ok());
  REQUIRE(ModeOf(path) == 0600);
  REQUIRE(ReadPrivateFile(path, 100).value() == "secret");
  REQUIRE(ReadPrivateFile(path, 3).value() == "sec");
  REQUIRE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path)));
  REQUIRE(WritePrivateFile(path, "other").ok());
  REQUIRE(ReadPrivateFile(path, 100).value() == "other");
  REQUIRE(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 2);
}

TEST_CASE("A secret that others could read, or that is no file, is not used", "[private_files]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "token";
  REQUIRE(absl::IsNotFound(ReadPrivateFile(path, 100).status()));
  REQUIRE(WritePrivateFile(path, "secret").ok());
  chmod(path.c_str(), 0644);
  const absl::Status open = ReadPrivateFile(path, 100).status();
  REQUIRE(absl::IsFailedPrecondition(open));
  REQUIRE(Says(open, "chmod 600 " + path));
  std::filesystem::create_symlink(path, dir.path() / "link");
  REQUIRE_FALSE(ReadPrivateFile(dir.path() / "link", 100).ok());
  REQUIRE_FALSE(ReadPrivateFile(dir.path(), 100).ok());
  REQUIRE(mkfifo((dir.path() / "pipe").c_str(), 0600) == 0);
  REQUIRE(absl::IsFailedPrecondition(ReadPrivateFile(dir.path() / "pipe", 100).status()));
}

TEST_CASE("A local socket is its owner's alone under any umask", "[private_files]") {
  const testing::TempDir dir;
  for (const mode_t mask : {0000, 0022, 0777}) {
    const UmaskOf umask(mask);
    const std::string path = dir.path() / std::to_string(mask);
    const auto listener = ListenLocal(path);
    REQUIRE(listener.ok());
    REQUIRE(ModeOf(path) == 0600);
  }
}

}  // namespace
}  // namespace tandem
