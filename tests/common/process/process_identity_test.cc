#include "common/process/process_identity.h"

#include <string>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

namespace tandem {

TEST_CASE("A process is itself until it ends, and then nobody", "[process]") {
  const std::string self = ProcessStart(getpid());
  REQUIRE_FALSE(self.empty());
  REQUIRE(ProcessStart(getpid()) == self);
  REQUIRE(OwnProcessStart() == self);
  REQUIRE(self.starts_with("pid:["));  // the namespace in which the number counts
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

}  // namespace tandem
