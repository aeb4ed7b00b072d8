#include <filesystem>
#include <fstream>
#include <optional>

#include <catch2/catch.hpp>

#include "common/net/server.h"
#include "common/process/files/controller_address.h"
#include "common/process/local_socket.h"
#include "controller/cli/api_commands.h"
#include "tests/support/file_mode.h"
#include "tests/support/temp_dir.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)
namespace fs = std::filesystem;

namespace {
class SilentApi final : public v1::TandemService::Service {};
}  // namespace

TEST_CASE("FindController prefers address, then run directory, then the run that is alive",
          "[ctl]") {
  const testing::TempDir dir;
  for (const char* run : {"dead", "old", "project/new"}) fs::create_directories(dir.path() / run);
  const std::string root = dir.path().string();
  std::ofstream(root + "/dead/controller.sock") << "";  // what a killed controller leaves
  std::optional<UniqueFd> live = ListenLocal(root + "/project/new/controller.sock").value();
  REQUIRE(FindController("127.0.0.1:7", "x", root).value() == "127.0.0.1:7");
  REQUIRE(FindController("", root + "/dead", root).value() ==
          "unix:" + root + "/dead/controller.sock");
  REQUIRE(FindController("", "", root).value() == "unix:" + root + "/project/new/controller.sock");
  const UniqueFd second = ListenLocal(root + "/old/controller.sock").value();
  const absl::Status which = FindController("", "", root).status();
  REQUIRE(absl::IsInvalidArgument(which));
  REQUIRE(which.message() == "2 controllers run under " + root +
                                 "/: name one with --run-dir: " + root + "/old/controller.sock, " +
                                 root + "/project/new/controller.sock");
  live.reset();
  REQUIRE(FindController("", "", root).value() == "unix:" + root + "/old/controller.sock");
}

TEST_CASE("A controller on a port is found with its token, by its run or by the port", "[ctl]") {
  const testing::TempDir dir;
  const std::string root = dir.path().string(), run = root + "/project/run";
  for (const char* folder : {"dead", "project/run"}) fs::create_directories(dir.path() / folder);
  const PublishedAddress dead(root + "/dead", "127.0.0.1:1");  // nobody listens there
  SilentApi service;
  const auto server =
      RpcServer::Start("127.0.0.1:0", {&service}, {.open_to_this_host = true}).value();
  const std::string address = server->address(), port = address.substr(address.rfind(':'));
  {
    const PublishedAddress published(run, address);
    REQUIRE(testing::ModeOf(run + "/controller.address") == 0600);
    REQUIRE(FindController("", "", root).value() == address);
    REQUIRE(FindController("", run, root).value() == address);
    std::ofstream(run + "/controller.sock") << "";  // of an earlier controller that was killed
    REQUIRE(FindController("", run, root).value() == address);
    fs::remove(run + "/controller.sock");
    REQUIRE(FindTokenFile(address, "", root) == run + "/token");
    REQUIRE(FindTokenFile("localhost" + port, "", root) == run + "/token");
    REQUIRE(FindTokenFile(address, root + "/other", root) == root + "/other/token");
    REQUIRE(FindTokenFile("127.0.0.1:2", "", root).empty());
    REQUIRE(FindTokenFile("node7" + port, "", root).empty());
    REQUIRE(FindTokenFile("unix:" + run + "/controller.sock", run, root).empty());
  }
  REQUIRE(FindController("", "", root).status().code() == absl::StatusCode::kNotFound);
  REQUIRE(FindController("", run, root).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("FindController says what it looked for", "[ctl]") {
  const testing::TempDir dir;
  const auto none = FindController("", "", dir.path().string()).status();
  REQUIRE(none.code() == absl::StatusCode::kNotFound);
  REQUIRE(std::string(none.message()).find("--address") != std::string::npos);
  const auto of_run = [&] {
    return std::string(FindController("", dir.path().string(), "runs").status().message());
  };
  const std::string base = dir.path().string();
  const std::string nobody =
      "no controller is running in " + base + ": " + base + "/controller.sock does not exist";
  REQUIRE(of_run() == nobody);
  // A run that is over has left what `steps` and `samples` would show.
  std::ofstream(dir.path() / "run.db") << "x";
  REQUIRE(of_run() ==
          nobody + "; what a run has left there: " + base + "/run.db (steps and samples, SQLite)");
  // Also where its socket is still there, and nobody answers.
  const absl::Status silent = absl::UnavailableError("no answer");
  REQUIRE(WithWhatIsLeft(silent, base).message() ==
          "no answer; what a run has left there: " + base + "/run.db (steps and samples, SQLite)");
  REQUIRE(WithWhatIsLeft(silent, "") == silent);
  REQUIRE(WithWhatIsLeft(absl::NotFoundError("no step 9"), base).message() == "no step 9");
  REQUIRE(WithWhatIsLeft(absl::OkStatus(), base).ok());
  std::ofstream(dir.path() / "report.html") << "x";
  REQUIRE(of_run() == nobody + "; what a run has left there: " + base +
                          "/report.html (the report), " + base +
                          "/run.db (steps and samples, SQLite)");
}
