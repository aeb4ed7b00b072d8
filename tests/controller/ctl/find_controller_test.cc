#include "controller/ctl/find_controller.h"

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)
namespace fs = std::filesystem;

TEST_CASE("FindController prefers address, then run directory, then the newest run", "[ctl]") {
  const testing::TempDir dir;
  for (const char* run : {"old", "project/new"}) {
    fs::create_directories(dir.path() / run);
    std::ofstream(dir.path() / run / "controller.sock") << "";
  }
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(dir.path() / "old" / "controller.sock", now - std::chrono::hours(1));
  fs::last_write_time(dir.path() / "project/new" / "controller.sock", now);
  const std::string root = dir.path().string();
  REQUIRE(FindController("127.0.0.1:7", "x", root).value() == "127.0.0.1:7");
  REQUIRE(FindController("", root + "/old", root).value() ==
          "unix:" + root + "/old/controller.sock");
  REQUIRE(FindController("", "", root).value() == "unix:" + root + "/project/new/controller.sock");
}

TEST_CASE("FindController says what it looked for", "[ctl]") {
  const testing::TempDir dir;
  const auto none = FindController("", "", dir.path().string()).status();
  REQUIRE(none.code() == absl::StatusCode::kNotFound);
  REQUIRE(std::string(none.message()).find("--address") != std::string::npos);
  REQUIRE_FALSE(FindController("", dir.path().string(), "runs").ok());
}
