// Under ThreadSanitizer only: it is told what gRPC orders (deploy/thread_sanitizer), and no more.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include <catch2/catch.hpp>
#include <grpcpp/channel.h>

#include "common/net/channel.h"
#include "common/net/server.h"
#include "tandem/v1/reward.grpc.pb.h"
#include "tests/support/patience.h"

namespace tandem {
namespace {

constexpr char kRaces[] = "TANDEM_TEST_HANDLERS_RACE";  // set in a process that shall be reported

// Its handlers use `value` without a mutex, each once `together` are in one.
class UnguardedReward : public v1::RewardService::Service {
 public:
  explicit UnguardedReward(int together) : together_(together) {}
  grpc::Status Score(grpc::ServerContext*, const v1::ScoreRequest*, v1::ScoreResponse*) override {
    // Nothing that ThreadSanitizer takes for an order.
    entered_.fetch_add(1, std::memory_order_relaxed);
    while (entered_.load(std::memory_order_relaxed) < together_) std::this_thread::yield();
    ++value;
    return grpc::Status::OK;
  }

  int value = 0;

 private:
  const int together_;
  std::atomic<int> entered_{0};
};

bool Call(const std::string& address) {
  const auto channel = MakeChannel(address);
  if (!channel.ok()) return false;
  grpc::ClientContext context;
  SetDeadline(context, testing::kPatience);
  v1::ScoreResponse response;
  return v1::RewardService::NewStub(*channel)->Score(&context, {}, &response).ok();
}

struct Result {
  int code = 0;
  std::string output;
};

Result RunRacingHandlers() {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      std::string(kRaces) + "=1 " + self + " 'a race of two handlers is reported' 2>&1";
  Result result;
  FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> part;
  while (const size_t bytes = fread(part.data(), 1, part.size(), pipe)) {
    result.output.append(part.data(), bytes);
  }
  result.code = WEXITSTATUS(pclose(pipe));
  return result;
}

}  // namespace

TEST_CASE("what a call orders is not a race") {
  UnguardedReward service(1);
  service.value = 1;
  const auto server = RpcServer::Start("127.0.0.1:0", {&service}, {.open_to_this_host = true});
  REQUIRE(server.ok());
  service.value = 2;
  REQUIRE(Call((*server)->address()));
  REQUIRE(service.value == 3);
  REQUIRE(Call((*server)->address()));
  REQUIRE(service.value == 4);
}

TEST_CASE("a race of two handlers is reported") {
  if (std::getenv(kRaces) == nullptr) {
    const Result result = RunRacingHandlers();
    // Without the word by which test_verdict.py finds a report.
    REQUIRE(result.code != 0);
    REQUIRE(result.output.find("data race") != std::string::npos);
    REQUIRE(result.output.find("handler_race_test.cc") != std::string::npos);
    return;
  }
  UnguardedReward service(2);
  const auto server = RpcServer::Start("127.0.0.1:0", {&service}, {.open_to_this_host = true});
  REQUIRE(server.ok());
  std::thread other([&] { (void)Call((*server)->address()); });
  (void)Call((*server)->address());
  other.join();
}

}  // namespace tandem
