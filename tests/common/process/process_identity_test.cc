#include "common/process/process_identity.h"

#include <string>

#include <catch2/catch.hpp>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tandem {

TEST_CASE("A process is itself until it ends, and then nobody", "[process]") {
  const std::string self = ProcessStart(getpid());
  REQUIRE_FALSE(self.empty());
  REQUIRE(ProcessStart(getpid()) == self);
  REQUIRE(OwnProcessStart() == self);
  REQUIRE(self.starts_with("pid:["));  // the namespace in which the number counts
  REQUIRE(SamePidNamespace(self, ProcessStart(getppid())));
  REQUIRE_FALSE(SamePidNamespace(self, "pid:[1] 5"));
  REQUIRE_FALSE(SamePidNamespace("", ""));
  REQUIRE(ProcessStart(0).empty());
  REQUIRE(ProcessStart(-1).empty());

  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    char byte = 0;
    (void)!read(ends[0], &byte, 1);  // until the test closes its end
    _exit(0);
  }
  close(ends[0]);
  REQUIRE_FALSE(ProcessStart(child).empty());
  close(ends[1]);
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  REQUIRE(ProcessStart(child).empty());  // a zombie
  REQUIRE(waitpid(child, nullptr, 0) == child);
  REQUIRE(ProcessStart(child).empty());
}

TEST_CASE("A process of another pid namespace is not taken for one of this", "[process]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    // Processes that are made from here on are in a namespace of their own, the first as number 1.
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(77);
    const pid_t inside = fork();
    if (inside == 0) {
      const std::string start = OwnProcessStart();
      const bool written = write(ends[1], start.data(), start.size()) == std::ssize(start);
      _exit(written && getpid() == 1 ? 0 : 1);
    }
    int status = 0;
    waitpid(inside, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  close(ends[1]);
  char text[256];
  const ssize_t bytes = read(ends[0], text, sizeof(text));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    WARN("not run: this machine allows no pid namespaces");
    return;
  }
  REQUIRE(WEXITSTATUS(status) == 0);
  REQUIRE(bytes > 0);
  const std::string start(text, static_cast<size_t>(bytes));
  REQUIRE(start.starts_with("pid:["));
  REQUIRE_FALSE(SamePidNamespace(start, OwnProcessStart()));
  REQUIRE(ProcessStart(1) != start);  // what has its number here is another process
}

}  // namespace tandem
