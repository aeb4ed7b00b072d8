#include "common/process/directory_lock.h"

#include <optional>
#include <string>

#include <catch2/catch.hpp>
#include <unistd.h>

#include "tests/fakes/fake_clock.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

TEST_CASE("A directory that is taken is refused, with its holder and the remedy", "[lock]") {
  const testing::TempDir dir;
  const std::string run = dir.path() / "run";
  const auto first = DirectoryLock::Take(run, "x.lock", "controller", "stop it");
  REQUIRE(first.ok());
  testing::FakeClock clock;
  const absl::Status second =
      DirectoryLock::Take(run, "x.lock", "controller", "stop it", absl::Seconds(5), clock).status();
  REQUIRE(second.code() == absl::StatusCode::kAlreadyExists);
  for (const std::string& part :
       {run + " is in use (controller, process " + std::to_string(getpid()) + " on ",
        std::string("): stop it")}) {
    REQUIRE(Says(second, part));
  }
  REQUIRE(clock.Now() >= Instant(absl::Hours(1) + absl::Seconds(5)));  // it has waited
  REQUIRE(DirectoryLock::Take(run, "y.lock", "launcher", "stop it").ok());
}

TEST_CASE("A lock is free again when its holder has gone, whatever the file says", "[lock]") {
  const testing::TempDir dir;
  std::optional<DirectoryLock> first =
      DirectoryLock::Take(dir.path().string(), "x.lock", "controller", "stop it").value();
  REQUIRE(DirectoryLock::IsHeld(dir.path().string(), "x.lock"));
  REQUIRE_FALSE(DirectoryLock::IsHeld(dir.path().string(), "y.lock"));
  first.reset();
  REQUIRE_FALSE(DirectoryLock::IsHeld(dir.path().string(), "x.lock"));
  REQUIRE(DirectoryLock::Take(dir.path().string(), "x.lock", "controller", "stop it").ok());
}

TEST_CASE("A holder that ends while it is waited for leaves the directory", "[lock]") {
  const testing::TempDir dir;
  std::optional<DirectoryLock> first =
      DirectoryLock::Take(dir.path().string(), "x.lock", "controller", "stop it").value();
  testing::FakeClock clock;
  clock.OnSleep([&] { first.reset(); });
  REQUIRE(DirectoryLock::Take(dir.path().string(), "x.lock", "controller", "stop it",
                              absl::Seconds(5), clock)
              .ok());
}

TEST_CASE("A directory that cannot be made is refused by name", "[lock]") {
  const absl::Status refused =
      DirectoryLock::Take("/proc/none/run", "x.lock", "controller", "stop it").status();
  REQUIRE_FALSE(refused.ok());
  REQUIRE(Says(refused, "/proc/none"));
}

}  // namespace
}  // namespace tandem
