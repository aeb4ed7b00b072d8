#include "common/net/server.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <thread>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <grpc/grpc.h>
#include <grpc/support/sync.h>
#include <grpcpp/channel.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/process/local_socket.h"
#include "common/process/threads.h"
#include "tandem/v1/reward.grpc.pb.h"
#include "tests/support/file_mode.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

class CountingReward : public v1::RewardService::Service {
 public:
  grpc::Status Score(grpc::ServerContext*,
                     const v1::ScoreRequest* request,
                     v1::ScoreResponse* response) override {
    for (int i = 0; i < request->items_size(); ++i) response->add_scores()->set_score(i);
    return grpc::Status::OK;
  }
};

int ScoresFrom(const std::string& address) {
  auto channel = MakeChannel(address);
  REQUIRE(channel.ok());
  auto stub = v1::RewardService::NewStub(*channel);
  grpc::ClientContext context;
  SetDeadline(context, testing::kPatience);
  context.set_wait_for_ready(true);
  v1::ScoreRequest request;
  request.add_items();
  v1::ScoreResponse response;
  const grpc::Status status = stub->Score(&context, request, &response);
  INFO(status.error_message());
  REQUIRE(status.ok());
  return response.scores_size();
}

// A port on which somebody greets one gRPC client, and says nothing any more.
class SilentPeer {
 public:
  SilentPeer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(listener_.get(), name, bytes) == 0);
    REQUIRE(listen(listener_.get(), 1) == 0);
    REQUIRE(getsockname(listener_.get(), name, &bytes) == 0);
    address_ = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
    thread_ = std::jthread([this] {
      client_.Reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      // The frame SETTINGS of HTTP/2, without any: the client takes the connection for ready.
      constexpr std::array<char, 9> kSettings = {0, 0, 0, 4};
      (void)send(client_.get(), kSettings.data(), kSettings.size(), MSG_NOSIGNAL);
    });
  }
  ~SilentPeer() { shutdown(listener_.get(), SHUT_RDWR); }
  const std::string& address() const { return address_; }

 private:
  UniqueFd listener_, client_;
  std::string address_;
  std::jthread thread_;
};

// Leaves the socket file of a process that died.
void LeaveDeadSocket(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0);
  close(fd);
}

}  // namespace

TEST_CASE("a call to a peer that vanished without a word ends long before its deadline") {
  const SilentPeer peer;
  const PeerWatch watch{.silence = absl::Milliseconds(50), .answer = absl::Milliseconds(50)};
  const auto stub = v1::RewardService::NewStub(*MakeChannel(peer.address(), {}, nullptr, watch));
  grpc::ClientContext context;
  SetDeadline(context, absl::Hours(1));
  v1::ScoreResponse response;
  REQUIRE(stub->Score(&context, {}, &response).error_code() == grpc::StatusCode::UNAVAILABLE);
}

TEST_CASE("RpcServer serves on a free port and tells which", "[rpc]") {
  CountingReward service;
  auto server = RpcServer::Start("127.0.0.1:0", {&service}, {.open_to_this_host = true});
  REQUIRE(server.ok());
  REQUIRE((*server)->address() != "127.0.0.1:0");
  REQUIRE(ScoresFrom((*server)->address()) == 1);
}

// Its shutdown can take ten seconds.
TEST_CASE("gRPC does not shut down with the last server", "[rpc]") {
  CountingReward service;
  RpcServer::Start("127.0.0.1:0", {&service}, {.open_to_this_host = true}).value().reset();
  REQUIRE(grpc_is_initialized() == 1);
}

// Abseil would end this process here where a distribution built it with its checks.
TEST_CASE("gRPC's mutexes are not searched for deadlocks", "[rpc]") {
  PrepareGrpc();
  std::array<gpr_mu, 2> mutexes;
  for (gpr_mu& mutex : mutexes) gpr_mu_init(&mutex);
  int taken = 0;
  for (const size_t first : {0, 1}) {
    gpr_mu_lock(&mutexes[first]);
    gpr_mu_lock(&mutexes[1 - first]);
    ++taken;
    gpr_mu_unlock(&mutexes[1 - first]);
    gpr_mu_unlock(&mutexes[first]);
  }
  for (gpr_mu& mutex : mutexes) gpr_mu_destroy(&mutex);
  REQUIRE(taken == 2);
}

TEST_CASE("An address without a colon is not an address", "[rpc]") {
  const absl::Status refused = MakeChannel("foo").status();
  REQUIRE(absl::IsInvalidArgument(refused));
  REQUIRE(std::string(refused.message()) == "address foo is neither host:port nor unix:/path");
}

TEST_CASE("RpcServer makes the folder of its socket", "[rpc]") {
  testing::TempDir dir;
  CountingReward service;
  const std::string address = "unix:" + (dir.path() / "run" / "not" / "yet" / "x.sock").string();
  const auto server = RpcServer::Start(address, {&service}, {});
  REQUIRE(server.ok());
  REQUIRE(ScoresFrom(address) == 1);
}

TEST_CASE("RpcServer's socket and its new folder are closed to other users", "[rpc]") {
  testing::TempDir dir;
  CountingReward service;
  for (const mode_t mask : {0000, 0022, 0177}) {
    const testing::UmaskOf umask(mask);
    const std::string folder = dir.path() / std::to_string(mask);
    const auto server = RpcServer::Start("unix:" + folder + "/x.sock", {&service}, {});
    REQUIRE(server.ok());
    REQUIRE(testing::ModeOf(folder) == 0700);
    REQUIRE(testing::ModeOf(folder + "/x.sock") == 0600);
    std::ofstream(folder + "/made_later") << "text";
    REQUIRE(testing::ModeOf(folder + "/made_later") == static_cast<int>(0666 & ~mask));
  }
}

TEST_CASE("RpcServer refuses a message of more than 8 MiB before it is decoded", "[rpc]") {
  testing::TempDir dir;
  CountingReward service;
  const std::string address = "unix:" + (dir.path() / "x.sock").string();
  const auto server = RpcServer::Start(address, {&service}, {});
  REQUIRE(server.ok());
  const auto stub = v1::RewardService::NewStub(*MakeChannel(address));
  v1::ScoreRequest request;
  request.add_items()->set_prompt(std::string(9 << 20, 'x'));
  v1::ScoreResponse response;
  grpc::ClientContext context;
  SetDeadline(context, testing::kPatience);
  REQUIRE(stub->Score(&context, request, &response).error_code() ==
          grpc::StatusCode::RESOURCE_EXHAUSTED);
  REQUIRE(ScoresFrom(address) == 1);
}

TEST_CASE("RpcServer says why it cannot listen", "[rpc]") {
  testing::TempDir dir;
  CountingReward service;
  const auto start = [&](const std::string& address) {
    return RpcServer::Start(address, {&service}, {}).status();
  };
  const absl::Status elsewhere = start("127.0.0.1.example.invalid:0");
  REQUIRE_FALSE(elsewhere.ok());
  std::ofstream(dir.path() / "file") << "text";
  const absl::Status under_a_file = start("unix:" + (dir.path() / "file" / "x.sock").string());
  INFO(under_a_file.ToString());
  REQUIRE(absl::IsPermissionDenied(under_a_file));
  REQUIRE(std::string(under_a_file.message()).find("Not a directory") != std::string::npos);
  const absl::Status no_folder = start("unix:/proc/no/x.sock");
  REQUIRE(std::string(no_folder.message()).find("No such file or directory") != std::string::npos);
}

TEST_CASE("RpcServer says that a port is in use", "[rpc]") {
  CountingReward first, second;
  auto server = RpcServer::Start("127.0.0.1:0", {&first}, {.open_to_this_host = true});
  REQUIRE(server.ok());
  const auto again = RpcServer::Start((*server)->address(), {&second}, {.open_to_this_host = true});
  REQUIRE(absl::IsAlreadyExists(again.status()));
  REQUIRE(std::string(again.status().message()).find((*server)->address()) != std::string::npos);
}

TEST_CASE("RpcServer replaces a dead socket, refuses a live one and a plain file", "[rpc]") {
  testing::TempDir dir;
  const std::string path = dir.path() / "x.sock";
  LeaveDeadSocket(path);
  CountingReward first, second;
  auto server = RpcServer::Start("unix:" + path, {&first}, {});
  REQUIRE(server.ok());
  REQUIRE(ScoresFrom("unix:" + path) == 1);
  REQUIRE(absl::IsAlreadyExists(RpcServer::Start("unix:" + path, {&second}, {}).status()));
  REQUIRE(ScoresFrom("unix:" + path) == 1);
  (*server)->Shutdown(absl::ZeroDuration());
  REQUIRE_FALSE(std::filesystem::exists(path));

  std::ofstream(path) << "text";
  REQUIRE(absl::IsAlreadyExists(RpcServer::Start("unix:" + path, {&second}, {}).status()));
}

TEST_CASE("RpcServer takes the place of a server whose socket goes while it waits for it",
          "[rpc]") {
  testing::TempDir dir;
  const std::string path = dir.path() / "x.sock";
  UniqueFd leaving = *ListenLocal(path);
  // The new server connects to see whether somebody listens: by then it has begun to wait.
  NamedThread leaves("leaves", [&] {
    const auto asked = AcceptLocal(leaving.get(), RealClock().Now() + testing::kPatience);
    if (asked.ok()) unlink(path.c_str());
  });
  CountingReward service;
  auto server = RpcServer::Start("unix:" + path, {&service}, {});
  leaves.Join();
  INFO(server.status());
  REQUIRE(server.ok());
  REQUIRE(ScoresFrom("unix:" + path) == 1);
}

TEST_CASE("RpcServer refuses addresses it cannot have, with the reason", "[rpc]") {
  CountingReward service;
  REQUIRE(absl::IsInvalidArgument(RpcServer::Start("nonsense", {&service}, {}).status()));
  const std::string longer = "unix:/tmp/" + std::string(120, 'x');
  const auto result = RpcServer::Start(longer, {&service}, {});
  REQUIRE(absl::IsInvalidArgument(result.status()));
  REQUIRE(std::string(result.status().message()).find("cluster.run_dir") != std::string::npos);
}

}  // namespace tandem
