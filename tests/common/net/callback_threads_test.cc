#include "common/net/callback_threads.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/clock.h>
#include <absl/time/time.h>
#include <catch2/catch.hpp>
#include <grpcpp/channel.h>

#include "common/net/call_tracker.h"
#include "common/net/channel.h"
#include "common/net/server.h"
#include "tandem/v1/reward.grpc.pb.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

// Answers nothing until its client has gone.
class WaitingReward : public v1::RewardService::Service {
 public:
  std::atomic<int> calls = 0;

  grpc::Status Score(grpc::ServerContext* context,
                     const v1::ScoreRequest*,
                     v1::ScoreResponse*) override {
    ++calls;
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    return grpc::Status::OK;
  }
};

// The ids of the threads on which gRPC calls back.
std::set<std::string> CallbackThreads() {
  std::set<std::string> ids;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "nexting_thread") ids.insert(task.path().filename());
  }
  return ids;
}

TEST_CASE("A call that ends after its client and all other channels calls back once", "[rpc]") {
  KeepCallbackThreads();
  std::set<std::string> before;
  testing::WaitUntil("a thread that calls back", [&] {
    before = CallbackThreads();
    return !before.empty();
  });
  const testing::TempDir dir;
  WaitingReward service;
  const std::string address = "unix:" + (dir.path() / "peer.sock").string();
  const auto server = RpcServer::Start(address, {&service}, {}).value();
  std::atomic<int> cancelled = 0;
  constexpr int kCalls = 20;
  for (int call = 0; call < kCalls; ++call) {
    const auto calls = std::make_shared<CallTracker>();
    auto stub = v1::RewardService::NewStub(MakeChannel(address).value());
    StartCall(calls, absl::Minutes(1), stub->async(),
              &v1::RewardService::StubInterface::async_interface::Score, v1::ScoreRequest(),
              [&cancelled](const absl::StatusOr<v1::ScoreResponse>& response) {
                cancelled += absl::IsCancelled(response.status());
              });
    testing::WaitUntil("the call's arrival", [&] { return service.calls == call + 1; });
    stub.reset();  // the call's context has the channel alone now, and ends on gRPC's thread
    calls->CancelAll();
    testing::WaitUntil("the call's end", [&] { return cancelled == call + 1; });
  }
  REQUIRE(cancelled == kCalls);
  const std::set<std::string> after = CallbackThreads();
  REQUIRE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
}

}  // namespace
}  // namespace tandem
