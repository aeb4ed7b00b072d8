// What a start and a dry run refuse alike before any process is started.
#include "common/net/start_checks.h"

#include <filesystem>
#include <fstream>

#include <absl/time/clock.h>
#include <catch2/catch.hpp>
#include <sys/stat.h>

#include "tests/fakes/fake_clock.h"
#include "tests/support/file_mode.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

TEST_CASE("A run directory that is a shared folder is refused, one that a start closes is not",
          "[start_checks]") {
  const testing::TempDir dir;
  const std::string shared = dir.path() / "shared", open = dir.path() / "open";
  std::filesystem::create_directory(shared);
  chmod(shared.c_str(), 01777);
  const absl::Status refused = CheckStartPlace({.run_dir = shared});
  INFO(refused);
  REQUIRE(absl::IsPermissionDenied(refused));
  REQUIRE(
      Says(refused, "cluster.run_dir: " + shared + " is a folder that users of this host share"));
  REQUIRE(Says(refused, "choose a folder below it"));
  std::filesystem::create_directory(open);
  chmod(open.c_str(), 0755);
  REQUIRE(CheckStartPlace({.run_dir = open}).ok());
  REQUIRE((testing::ModeOf(open) & 07777) == 0755);  // a check changes nothing
  REQUIRE(CheckStartPlace({.run_dir = dir.path() / "none" / "yet"}).ok());
  REQUIRE_FALSE(std::filesystem::exists(dir.path() / "none"));
}

TEST_CASE("A socket in a folder that does not exist is refused outside of the run directory alone",
          "[start_checks]") {
  const testing::TempDir dir;
  const std::string run_dir = dir.path() / "run", nope = dir.path() / "nope";
  const auto check = [&](const std::string& socket) {
    return CheckStartPlace({.run_dir = run_dir, .listen = "unix:" + socket});
  };
  const absl::Status refused = check(nope + "/x");
  INFO(refused);
  REQUIRE(absl::IsNotFound(refused));
  REQUIRE(
      Says(refused, "cluster.listen=unix:" + nope + "/x: the folder " + nope + " does not exist"));
  REQUIRE(Says(refused, "mkdir -m 700 " + nope));
  REQUIRE_FALSE(std::filesystem::exists(nope));
  REQUIRE(absl::IsNotFound(check(run_dir + "/../nope/x")));
  REQUIRE(absl::IsNotFound(check(run_dir + "-other/x")));
  REQUIRE(check(run_dir + "/controller.sock").ok());
  REQUIRE(check(run_dir + "/sockets/controller.sock").ok());
  REQUIRE(check((dir.path() / "x").string()).ok());
}

TEST_CASE("A file that is none of TLS is told with its key, the file and where to read on",
          "[start_checks]") {
  const testing::TempDir dir;
  const std::string text = dir.path() / "text.pem";
  std::ofstream(text) << "no PEM\n";
  testing::FakeClock clock(absl::Now());  // the file might only be in replacement
  const absl::Status refused = CheckStartPlace(
      {.run_dir = dir.path() / "run", .security = {.cert = text, .key = text, .ca = text}}, clock);
  INFO(refused);
  REQUIRE(absl::IsInvalidArgument(refused));
  REQUIRE(Says(refused, "cluster.tls.cert or --tls-cert, " + text));
  REQUIRE(Says(refused, "there is no PEM certificate in it"));
  REQUIRE(Says(refused, "docs/guides/security.md"));
}

}  // namespace
}  // namespace tandem
