#include "common/process/cores.h"

#include <cstdlib>
#include <set>
#include <string>
#include <thread>

#include <catch2/catch.hpp>
#include <sched.h>

namespace tandem {

TEST_CASE("pairs get neighbouring cores of their own out of those that are allowed", "[cores]") {
  const std::vector<int> allowed = {2, 3, 5, 8, 13, 21};
  REQUIRE(SelectCores(allowed, 0, 2, 3) == std::vector<int>{2, 3, 5});
  REQUIRE(SelectCores(allowed, 1, 2, 3) == std::vector<int>{8, 13, 21});
  REQUIRE(SelectCores(allowed, 2, 3, 1) == std::vector<int>{5});
  for (int pairs = 1; pairs <= 6; ++pairs) {
    for (int threads = 1; pairs * threads <= 6; ++threads) {
      std::set<int> taken;
      for (int pair = 0; pair < pairs; ++pair) {
        const std::vector<int> cores = SelectCores(allowed, pair, pairs, threads);
        REQUIRE(cores.size() == static_cast<size_t>(threads));
        for (const int core : cores) REQUIRE(taken.insert(core).second);
      }
    }
  }
}

TEST_CASE("nothing is pinned where the pairs' threads are more than the cores", "[cores]") {
  REQUIRE(SelectCores({0, 1}, 0, 3, 1).empty());
  REQUIRE(SelectCores({0, 1}, 0, 1, 3).empty());
  REQUIRE(SelectCores({0, 1}, 1, 2, 2).empty());
  REQUIRE(SelectCores({}, 0, 1, 1).empty());
  // A rank that is not a pair's, and counts that overflow an int.
  REQUIRE(SelectCores({0, 1}, 2, 2, 1).empty());
  REQUIRE(SelectCores({0, 1}, -1, 2, 1).empty());
  REQUIRE(SelectCores({0, 1}, 0, 1 << 20, 1 << 20).empty());
  REQUIRE(SelectCores({0, 1}, 0, 2, 0).empty());
}

TEST_CASE("threads are pinned where the environment asks for it", "[cores]") {
  const std::vector<int> allowed = AllowedCores();
  for (const char* setting : {"", "0", "1"}) {
    setenv("TANDEM_PIN_THREADS", setting, 1);
    const bool pinned = std::string(setting) == "1";
    REQUIRE(ComputeCores(0, 1, 1) == (pinned ? std::vector<int>{allowed[0]} : std::vector<int>{}));
  }
  unsetenv("TANDEM_PIN_THREADS");
  REQUIRE(ComputeCores(0, 1, 1).empty());
  REQUIRE(PinningText({}) == "not pinned");
  REQUIRE(PinningText({2, 3}) == "pinned to cores 2, 3");
}

TEST_CASE("a thread that is pinned stays on its core until it is let go, its starter does not",
          "[cores]") {
  const std::vector<int> allowed = AllowedCores();
  REQUIRE_FALSE(allowed.empty());
  cpu_set_t set;
  std::jthread([&] {
    PinThisThread(allowed.back());
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
  }).join();
  REQUIRE(CPU_COUNT(&set) == 1);
  REQUIRE(CPU_ISSET(allowed.back(), &set));
  REQUIRE(AllowedCores() == allowed);
  std::jthread([&] {
    PinThisThread(allowed.back());
    UnpinThisThread();
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
  }).join();
  REQUIRE(CPU_COUNT(&set) == static_cast<int>(allowed.size()));
}

}  // namespace tandem
