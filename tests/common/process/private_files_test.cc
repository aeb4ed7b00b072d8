#include "common/process/files/private_files.h"

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>

#include <catch2/catch.hpp>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/process/files/sync_folder.h"
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

TEST_CASE("What is made above a private folder is writable to nobody else", "[private_files]") {
  const testing::TempDir dir;
  const UmaskOf umask(0);
  REQUIRE(MakePrivateFolder(dir.path() / "project" / "experiment" / "run").ok());
  REQUIRE(ModeOf(dir.path() / "project") == 0755);
  REQUIRE(ModeOf(dir.path() / "project" / "experiment") == 0755);
  REQUIRE(MakeSocketFolder(dir.path() / "sockets" / "run").ok());
  REQUIRE(ModeOf(dir.path() / "sockets") == 0755);
}

TEST_CASE("A program makes no file that others may write", "[private_files]") {
  for (const auto& [before, after] :
       {std::pair{0000, 0022}, std::pair{0002, 0022}, std::pair{0077, 0077}}) {
    const UmaskOf mask(before);
    KeepOthersFromWriting();
    REQUIRE(umask(after) == static_cast<mode_t>(after));
  }
}

TEST_CASE("A folder that users share is refused as a private one", "[private_files]") {
  const testing::TempDir dir;
  const std::string shared = dir.path() / "tmp";
  mkdir(shared.c_str(), 0700);
  chmod(shared.c_str(), 01777);
  const absl::Status refused = MakePrivateFolder(shared);
  REQUIRE(absl::IsPermissionDenied(refused));
  REQUIRE(Says(refused, shared));
  REQUIRE(Says(refused, "below it"));
  REQUIRE(ModeOf(shared) == 01777);  // it is not ours to close
  REQUIRE(MakePrivateFolder(shared + "/run").ok());
}

// Lets the system calls `number` of this process do nothing and succeed.
bool MakeIdle(std::initializer_list<long> numbers) {
  for (const long number : numbers) {
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{.len = std::size(rules), .filter = rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
      return false;
    }
  }
  return true;
}

TEST_CASE("A folder whose mode cannot be changed is refused, though the change succeeds",
          "[private_files]") {
  const testing::TempDir dir;
  const std::string folder = dir.path() / "run";
  mkdir(folder.c_str(), 0700);
  chmod(folder.c_str(), 0777);
  const pid_t child = fork();
  if (child == 0) {
    if (!MakeIdle({SYS_fchmod})) _exit(99);
    const absl::Status as_run = MakePrivateFolder(folder), as_socket = MakeSocketFolder(folder);
    _exit((absl::IsPermissionDenied(as_run) && Says(as_run, "keep no modes") ? 1 : 0) +
          (absl::IsPermissionDenied(as_socket) ? 2 : 0));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 3);
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

// The two answers in a process of its own, as another user.
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
  const testing::TempDir dir;
  chmod(dir.path().c_str(), 0755);
  const std::string theirs = dir.path() / "theirs", roots = dir.path() / "roots";
  mkdir(theirs.c_str(), 0700);
  chmod(theirs.c_str(), 0777);
  if (chown(theirs.c_str(), kAnother, kAnother) != 0) {
    REQUIRE(geteuid() != 0);
    WARN("not run: only root can give a folder to another user");
    return;
  }
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

TEST_CASE("A private file that must be new takes the place of nothing", "[private_files]") {
  const testing::TempDir dir;
  const UmaskOf umask(0);
  const std::string path = dir.path() / "key";
  REQUIRE(WriteNewPrivateFile(path, "first").ok());
  REQUIRE(ModeOf(path) == 0600);
  const absl::Status second = WriteNewPrivateFile(path, "second");
  REQUIRE(absl::IsAlreadyExists(second));
  REQUIRE(Says(second, path + " exists already"));
  REQUIRE(ReadPrivateFile(path, 100).value() == "first");
  const std::string link = dir.path() / "link";
  std::filesystem::create_symlink(dir.path() / "nowhere", link);
  REQUIRE(absl::IsAlreadyExists(WriteNewPrivateFile(link, "third")));
  REQUIRE(std::filesystem::is_symlink(link));
  // Nothing is left beside them.
  REQUIRE(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 2);
}

TEST_CASE("A secret that others could read, or that is not a file, is not used",
          "[private_files]") {
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

TEST_CASE("A secret of another user is not used, and root is told of file systems without root",
          "[private_files]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "token";
  REQUIRE(WritePrivateFile(path, "secret").ok());
  if (chown(path.c_str(), kAnother, kAnother) != 0) {
    REQUIRE(geteuid() != 0);
    WARN("not run: only root can give a file to another user");
    return;
  }
  const absl::Status theirs = ReadPrivateFile(path, 100).status();
  INFO(theirs);
  REQUIRE(absl::IsFailedPrecondition(theirs));
  REQUIRE(Says(theirs, path + " is not used, as it belongs to user " + std::to_string(kAnother)));
  REQUIRE(Says(theirs, "this process runs as user 0: start it as that user"));
  REQUIRE(Says(theirs, "no_root_squash"));
}

TEST_CASE("A folder is synced, and what is none is told by its errno", "[private_files]") {
  const testing::TempDir dir;
  REQUIRE(SyncFolder(dir.path()) == 0);
  REQUIRE(SyncFolder("") == 0);
  REQUIRE(SyncFolder(dir.path() / "nowhere") == ENOENT);
  std::ofstream(dir.path() / "file") << "text";
  REQUIRE(SyncFolder(dir.path() / "file") == ENOTDIR);
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
