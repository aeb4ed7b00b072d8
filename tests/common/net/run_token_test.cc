#include "common/process/files/run_token.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/channel.h>

#include "common/net/channel.h"
#include "common/net/server.h"
#include "common/net/worker_program.h"
#include "common/process/exit_code.h"
#include "common/process/files/private_files.h"
#include "tandem/v1/reward.grpc.pb.h"
#include "tests/support/file_mode.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

class Answering final : public v1::RewardService::Service {
 public:
  grpc::Status Score(grpc::ServerContext* context,
                     const v1::ScoreRequest*,
                     v1::ScoreResponse*) override {
    saw_token = context->client_metadata().contains("authorization");
    return grpc::Status::OK;
  }
  std::atomic<bool> saw_token = false;
};

struct TokenFixture {
  testing::TempDir dir;
  std::string path = RunTokenPath(dir.path());
  Answering service;
  std::unique_ptr<RpcServer> server;

  explicit TokenFixture(const std::string& address = "127.0.0.1:0") {
    REQUIRE(MakeRunToken(path).ok());
    server = RpcServer::Start(address, {&service}, {.token_file = path}).value();
  }

  grpc::Status Call(const RpcSecurity& security, const std::string& header = "") {
    const auto stub = v1::RewardService::NewStub(MakeChannel(server->address(), security).value());
    grpc::ClientContext context;
    SetDeadline(context, testing::kPatience);
    if (!header.empty()) context.AddMetadata("authorization", header);
    v1::ScoreResponse response;
    return stub->Score(&context, {}, &response);
  }
};

}  // namespace

TEST_CASE("A token is 32 random bytes that only its user can read", "[token]") {
  const testing::TempDir dir;
  const testing::UmaskOf umask(0);
  const std::string path = RunTokenPath(dir.path());
  REQUIRE(path == (dir.path() / "token").string());
  REQUIRE(absl::IsNotFound(ReadRunToken(path).status()));
  REQUIRE(MakeRunToken(path).ok());
  REQUIRE(testing::ModeOf(path) == 0600);
  const std::string first = ReadRunToken(path).value();
  REQUIRE(first.size() == 64);
  REQUIRE(first.find_first_not_of("0123456789abcdef") == std::string::npos);
  REQUIRE(MakeRunToken(path).ok());
  REQUIRE(ReadRunToken(path).value() != first);
  REQUIRE(WritePrivateFile(path, first.substr(1)).ok());
  REQUIRE(absl::IsFailedPrecondition(ReadRunToken(path).status()));
}

TEST_CASE("A controller's token goes with it", "[token]") {
  const testing::TempDir dir;
  const std::string path = RunTokenPath(dir.path());
  REQUIRE_FALSE(RunToken::Make(dir.path() / "nowhere" / "token").ok());
  {
    const auto token = RunToken::Make(path).value();
    REQUIRE(ReadRunToken(path).ok());
  }
  REQUIRE_FALSE(std::filesystem::exists(path));
}

TEST_CASE("Only the whole token is the token", "[token]") {
  const std::string token(64, 'a');
  REQUIRE(IsRunToken(token, token));
  for (const std::string& other : {std::string(63, 'a') + "b", "b" + std::string(63, 'a'),
                                   std::string(63, 'a'), std::string(65, 'a'), std::string()}) {
    REQUIRE_FALSE(IsRunToken(token, other));
  }
  REQUIRE_FALSE(IsRunToken("", ""));
}

TEST_CASE("A loopback port is served to who has the run's token", "[token]") {
  for (const char* address : {"127.0.0.1:0", "localhost:0", "[::1]:0"}) {
    TokenFixture f(address);
    const grpc::Status answered = f.Call({.token_file = f.path});
    INFO(address << ": " << answered.error_message());
    REQUIRE(answered.ok());
    REQUIRE_FALSE(f.service.saw_token.load());  // handlers and their logs get none
  }
}

TEST_CASE("A call without the token or with another is refused with the file and what to do",
          "[token]") {
  TokenFixture f;
  const std::string other = f.dir.path() / "other";
  REQUIRE(MakeRunToken(other).ok());
  const std::string token = ReadRunToken(f.path).value();
  const auto refused = [&](const grpc::Status& status) {
    INFO(status.error_message());
    REQUIRE(status.error_code() == grpc::StatusCode::UNAUTHENTICATED);
    REQUIRE(status.error_message().find(f.path) != std::string::npos);
    REQUIRE(status.error_message().find("--run-dir") != std::string::npos);
    REQUIRE(status.error_message().find(token) == std::string::npos);
  };
  refused(f.Call({}));
  refused(f.Call({.token_file = other}));
  refused(f.Call({.token_file = "/nonexistent/token"}));
  refused(f.Call({}, token));  // without "Bearer"
  refused(f.Call({}, "Bearer "));
  refused(f.Call({}, "Bearer " + token.substr(1)));
  REQUIRE(f.Call({}, "Bearer " + token).ok());
}

TEST_CASE("A new token counts for the next call, on both sides", "[token]") {
  TokenFixture f;
  const std::string before = "Bearer " + ReadRunToken(f.path).value();
  REQUIRE(f.Call({}, before).ok());
  REQUIRE(MakeRunToken(f.path).ok());
  REQUIRE(f.Call({}, before).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  REQUIRE(f.Call({.token_file = f.path}).ok());
  std::filesystem::remove(f.path);
  REQUIRE(f.Call({}, before).error_code() == grpc::StatusCode::UNAUTHENTICATED);
}

TEST_CASE("Unix sockets need no token", "[token]") {
  const testing::TempDir dir;
  TokenFixture f("unix:" + (dir.path() / "x.sock").string());
  REQUIRE(f.Call({}).ok());
}

TEST_CASE("Other loopback addresses cannot be served with a token", "[token]") {
  Answering service;
  const absl::Status refused =
      RpcServer::Start("127.8.0.1:0", {&service}, {.token_file = "/t"}).status();
  REQUIRE(absl::IsInvalidArgument(refused));
  REQUIRE(Says(refused, "127.0.0.1"));
}

TEST_CASE("A worker finds the token beside its controller's socket", "[token]") {
  REQUIRE(WorkerTokenFile("", "unix:/r/controller.sock") == "/r/token");
  REQUIRE(WorkerTokenFile("", "127.0.0.1:7001").empty());
  REQUIRE(WorkerTokenFile("/elsewhere/t", "unix:/r/controller.sock") == "/elsewhere/t");
}

TEST_CASE("A worker on a port without token file is refused before it listens", "[token]") {
  const auto parse = [](std::vector<std::string> words) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    WorkerFlags flags;
    return ParseWorkerFlags("trainer", "", static_cast<int>(argv.size()), argv.data(), &flags);
  };
  const std::vector<std::string> words = {"x", "--rank", "0", "--controller", "127.0.0.1:7001"};
  REQUIRE(parse(words) == kExitRefused);
  std::vector<std::string> with = words;
  with.insert(with.end(), {"--token-file", "/r/token"});
  REQUIRE(parse(with) == kExitDone);
  REQUIRE(parse({"x", "--rank", "0", "--controller", "unix:/r/controller.sock"}) == kExitDone);
}

}  // namespace tandem
