#include "deploy/launcher/slurm/launch_sign.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>

#include "tests/fakes/fake_clock.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

TEST_CASE("a launcher that writes its sign, or has taken it away, is in charge") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "sign";
  testing::FakeClock clock;
  int looks = 0;
  clock.OnSleep([&] {
    if (++looks == 3) std::ofstream(path) << "2";
  });
  std::ofstream(path) << "1";
  REQUIRE(LaunchIsInCharge(path, clock));
  REQUIRE(looks == 3);
  std::filesystem::remove(path);
  REQUIRE(LaunchIsInCharge(path, clock));
}

TEST_CASE("a launcher that shows no sign for long is in charge no more") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "sign";
  std::ofstream(path) << "1";
  testing::FakeClock clock;
  const Instant begin = clock.Now();
  REQUIRE_FALSE(LaunchIsInCharge(path, clock));
  REQUIRE(clock.Now() >= begin + kLaunchSignPatience);
}

TEST_CASE("a sign is written as long as its launcher runs") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "sign";
  {
    const LaunchSign sign(path);
    testing::WaitUntil("the first sign", [&] { return std::filesystem::exists(path); });
  }
  REQUIRE(std::filesystem::file_size(path) > 0);
}

}  // namespace
}  // namespace tandem
