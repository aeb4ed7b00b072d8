#include "tests/support/test_process.h"

#include <array>

#include <catch2/catch.hpp>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tandem::testing {

TEST_CASE("a program that a test has started ends when the test is killed") {
  std::array<int, 2> life{};  // the program holds its end open
  REQUIRE(pipe(life.data()) == 0);
  const pid_t test = fork();
  if (test == 0) {
    close(life[0]);
    const TestProcess program({.argv = {"/bin/sleep", "infinity"}});
    raise(SIGKILL);
  }
  close(life[1]);
  int status = 0;
  REQUIRE(waitpid(test, &status, 0) == test);
  REQUIRE(WIFSIGNALED(status));
  char byte = 0;
  REQUIRE(read(life[0], &byte, 1) == 0);
  close(life[0]);
}

}  // namespace tandem::testing
