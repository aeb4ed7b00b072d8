// A run directory is shown whatever listens at the address that its run has published.
#include <fstream>
#include <memory>
#include <sstream>

#include <catch2/catch.hpp>

#include "common/net/server.h"
#include "common/process/files/controller_address.h"
#include "common/process/files/run_token.h"
#include "controller/cli/api_commands.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {

using testing::Has;

namespace {

class OneRunApi final : public v1::TandemService::Service {
 public:
  OneRunApi(std::string run_id, std::string run_dir)
      : run_id_(std::move(run_id)), run_dir_(std::move(run_dir)) {}

  grpc::Status GetStatus(grpc::ServerContext*,
                         const v1::GetStatusRequest*,
                         v1::GetStatusResponse* reply) override {
    reply->set_run_id(run_id_);
    reply->set_run_dir(run_dir_);
    reply->set_phase("answered");
    return grpc::Status::OK;
  }

 private:
  const std::string run_id_, run_dir_;
};

// A run directory with records of the run "p/e/1", whose address is published as `address`.
struct PublishedRun {
  explicit PublishedRun(const std::string& address) : published(dir.path().string(), address) {
    const auto store = SqliteRunStore::Open(dir.path() / "run.db").value();
    REQUIRE(store->RecordRun({.run_id = "p/e/1", .total_steps = 3}).ok());
  }

  // What `status` says.
  std::string Status(RpcSecurity security = {}) {
    std::ostringstream out;
    ShowAttempt attempt;
    const absl::Status shown = ShowRun(
        {.run_dir = dir.path().string(), .security = std::move(security), .json = true},
        [](ReadingCommands& commands) { return commands.ShowStatus(); }, out, attempt);
    INFO(shown.ToString());
    REQUIRE(shown.ok());
    REQUIRE(attempt.found);
    return out.str();
  }

  testing::TempDir dir;
  PublishedAddress published;
};

constexpr char kFromFiles[] = "\"from_files\":true";

// Any port, behind the token of `token_dir` ("": open).
std::unique_ptr<RpcServer> Serve(OneRunApi& api, const std::string& token_dir) {
  RpcSecurity security;
  if (token_dir.empty()) {
    security.open_to_this_host = true;
  } else {
    security.token_file = RunTokenPath(token_dir);
  }
  return RpcServer::Start("127.0.0.1:0", {&api}, security).value();
}

}  // namespace

TEST_CASE("A run directory is read where its published port is another run's or refuses",
          "[ctl][api]") {
  const testing::TempDir elsewhere;
  const std::string other_dir = elsewhere.path().string();
  REQUIRE(MakeRunToken(RunTokenPath(other_dir)).ok());
  OneRunApi other("p/e/2", other_dir);
  const auto open = Serve(other, ""), closed = Serve(other, other_dir);

  PublishedRun of_closed(closed->address());  // without a token file
  REQUIRE(Has(of_closed.Status(), kFromFiles));
  REQUIRE(MakeRunToken(RunTokenPath(of_closed.dir.path().string())).ok());  // another token
  REQUIRE(Has(of_closed.Status(), kFromFiles));
  PublishedRun of_nobody("127.0.0.1:1");
  REQUIRE(MakeRunToken(RunTokenPath(of_nobody.dir.path().string())).ok());
  REQUIRE(Has(of_nobody.Status(), kFromFiles));

  PublishedRun of_open(open->address());
  REQUIRE(MakeRunToken(RunTokenPath(of_open.dir.path().string())).ok());
  const std::string said = of_open.Status();
  REQUIRE(Has(said, kFromFiles));
  REQUIRE(Has(said, "p/e/1"));
}

TEST_CASE("A run directory's own controller is asked, by whatever path it knows the directory",
          "[ctl][api]") {
  OneRunApi moved("p/e/1", "/path/in/a/container");
  const auto server = Serve(moved, "");
  PublishedRun run(server->address());
  REQUIRE(MakeRunToken(RunTokenPath(run.dir.path().string())).ok());
  REQUIRE(Has(run.Status(), "answered"));
  OneRunApi renamed("p/e/9", run.dir.path().string());  // a new run, without records yet
  const auto second = Serve(renamed, "");
  const PublishedAddress republished(run.dir.path().string(), second->address());
  REQUIRE(Has(run.Status(), "p/e/9"));
}

TEST_CASE("Where there are no files either, both failures are named", "[ctl][api]") {
  const testing::TempDir dir;
  OneRunApi other("p/e/2", "/other");
  const auto server = Serve(other, "");
  REQUIRE(MakeRunToken(RunTokenPath(dir.path().string())).ok());
  const PublishedAddress published(dir.path().string(), server->address());
  std::ostringstream out;
  ShowAttempt attempt;
  const absl::Status shown = ShowRun(
      {.run_dir = dir.path().string()},
      [](ReadingCommands& commands) { return commands.ShowStatus(); }, out, attempt);
  REQUIRE(absl::IsNotFound(shown));
  REQUIRE(Has(std::string(shown.message()), "there is no run in "));
  REQUIRE(Has(std::string(shown.message()), "is the controller of the run p/e/2 in /other"));
}

}  // namespace tandem
