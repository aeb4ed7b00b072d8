// Trainer and rollout as two processes: whole updates with small and large slots, and the death or
// hang of either side (W11 of the test plan).
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <absl/time/clock.h>
#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/device/ledger.h"
#include "common/rpc/channel.h"
#include "common/weights/weight_check.h"
#include "common/weights/weight_publisher.h"
#include "tandem/v1/rollout.grpc.pb.h"
#include "tests/common/weights/pair_fixture.h"
#include "tests/fakes/memory_weights.h"
#include "trainer_worker/weights/grpc_update_client.h"

namespace tandem {
namespace {

using testing::MemoryWeights;

// A process of pair_peer; killed when it goes out of scope.
class Peer {
 public:
  explicit Peer(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TANDEM_PAIR_PEER);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    REQUIRE(posix_spawn(&pid_, TANDEM_PAIR_PEER, nullptr, nullptr, argv.data(), environ) == 0);
  }
  ~Peer() { Wait(SIGKILL); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  // Exit code, or -signal.
  int Wait(int signal_first = 0) {
    if (pid_ == 0) return 0;
    if (signal_first != 0) kill(pid_, signal_first);
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
};

struct Pair {
  explicit Pair(const std::string& model_size)
      : size(model_size),
        layout(WeightLayout::Build(testing::PairSpec(model_size), DType::kBFloat16)) {
    std::string path = "/tmp/tandem-pair-XXXXXX";
    REQUIRE(mkdtemp(path.data()) != nullptr);
    directory = path;
    address = "unix:" + directory + "/rollout.sock";
  }
  ~Pair() { std::filesystem::remove_all(directory); }

  std::unique_ptr<Peer> StartRollout(const std::string& fault = "none", int at = -1) {
    auto peer = std::make_unique<Peer>(std::vector<std::string>{
        "rollout", address, directory + "/pair.sock", size, fault, std::to_string(at)});
    channel = *MakeChannel(address);
    REQUIRE(channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(60)));
    return peer;
  }
  std::unique_ptr<Peer> StartTrainer(int seed, int version, const std::string& fault, int at) {
    return std::make_unique<Peer>(
        std::vector<std::string>{"trainer", address, size, std::to_string(seed),
                                 std::to_string(version), "65536", fault, std::to_string(at)});
  }
  absl::StatusOr<PublishReport> Publish(int64_t version,
                                        MemoryWeights& weights,
                                        int64_t slot_bytes,
                                        absl::Duration deadline = absl::Seconds(60)) {
    GrpcUpdateClient client(channel, {0, "boot", deadline});
    WeightPublisher publisher(&layout, {slot_bytes, 2, &ledger});
    return publisher.Publish(version, weights, &client);
  }
  v1::RolloutStatusResponse Status() {
    grpc::ClientContext context;
    SetDeadline(context, absl::Seconds(60));
    v1::RolloutStatusResponse response;
    const auto stub = v1::RolloutService::NewStub(channel);
    REQUIRE(stub->GetStatus(&context, {}, &response).ok());
    return response;
  }
  WeightCheckReport Check(MemoryWeights& weights) {
    GrpcUpdateClient client(channel, {});
    const auto report = CheckWeights(layout, weights, &client);
    INFO(report.status().ToString());
    REQUIRE(report.ok());
    return *report;
  }

  std::string size, directory, address;
  WeightLayout layout;
  Ledger ledger;
  std::shared_ptr<grpc::Channel> channel;
};

// Mappings and descriptors of shared memory that this process holds.
int SharedMemoryHeld() {
  int held = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    held += target.find("memfd:tandem-") != std::string::npos ? 1 : 0;
  }
  return held;
}

constexpr int64_t kMiB = 1 << 20;

}  // namespace

TEST_CASE("updates with small and large slots give equal digests in two processes") {
  Pair pair("full");
  const auto rollout = pair.StartRollout();
  int64_t version = 0;
  std::string digest;
  MemoryWeights weights(pair.layout, 11);
  for (const int64_t slot_bytes : {4 * kMiB, 64 * kMiB, 512 * kMiB}) {
    // Differs from the last version, so that nothing of it may be left.
    for (const TensorPlace& place : pair.layout.places()) {
      weights.tensor(place.name)[0] ^= std::byte{0x5a};
    }
    const auto report = pair.Publish(++version, weights, slot_bytes);
    INFO(report.status().ToString());
    REQUIRE(report.ok());
    REQUIRE(report->tensors == 272);
    REQUIRE(report->buckets >= (slot_bytes == 4 * kMiB ? 64 : slot_bytes == 64 * kMiB ? 5 : 1));
    const WeightCheckReport check = pair.Check(weights);
    REQUIRE(check.ok());
    REQUIRE(check.checked == 272);
    REQUIRE(check.version == version);
    REQUIRE(report->digest != digest);
    digest = report->digest;
  }
  REQUIRE(BytesOf(pair.ledger.Snapshot(), "bucket") == 0);
  REQUIRE(SharedMemoryHeld() == 0);
}

TEST_CASE("a rollout killed in an update is reported and its successor is filled") {
  Pair pair("small");
  MemoryWeights weights(pair.layout, 3);
  for (const int at : {0, 1, 7}) {
    const auto victim = pair.StartRollout("die", at);
    const absl::Status status = pair.Publish(1, weights, 65536).status();
    INFO(status.ToString());
    REQUIRE(status.code() == absl::StatusCode::kUnavailable);
    REQUIRE(std::string(status.message()).find("on the paired rollout") != std::string::npos);
    REQUIRE(victim->Wait() == -SIGKILL);
    REQUIRE(SharedMemoryHeld() == 0);
    REQUIRE(BytesOf(pair.ledger.Snapshot(), "bucket") == 0);

    const auto successor = pair.StartRollout();
    REQUIRE(pair.Publish(1, weights, 65536).ok());
    REQUIRE(pair.Check(weights).ok());
  }
}

TEST_CASE("a trainer killed in an update empties the rollout and its successor fills it") {
  Pair pair("small");
  const auto rollout = pair.StartRollout();
  MemoryWeights weights(pair.layout, 3);
  REQUIRE(pair.Publish(1, weights, 65536).ok());
  // Before the first bucket the descriptor lies in the socket and nothing has been applied.
  for (const int at : {0, 1, 9}) {
    REQUIRE(pair.StartTrainer(4, 2, "die", at)->Wait() == -SIGKILL);
    const v1::RolloutStatusResponse status = pair.Status();
    // The first bucket may or may not have been sent before the death that followed it.
    if (at == 0) REQUIRE(status.version() == 1);
    if (at == 9) REQUIRE(status.version() == -1);
    REQUIRE(status.state() == (status.version() < 0 ? v1::EMPTY : v1::SERVING));
    REQUIRE(status.last_action().find("the trainer died during the update to version 2") == 0);
    REQUIRE(pair.Publish(3 + at, weights, 65536).ok());
    REQUIRE(pair.Status().version() == 3 + at);
    REQUIRE(pair.Check(weights).ok());
  }
}

TEST_CASE("a rollout that stalls is a deadline for the trainer") {
  Pair pair("small");
  const auto rollout = pair.StartRollout("stall", 2);
  MemoryWeights weights(pair.layout, 3);
  const absl::Time start = absl::Now();
  const absl::Status status = pair.Publish(1, weights, 65536, absl::Milliseconds(500)).status();
  INFO(status.ToString());
  REQUIRE(status.code() == absl::StatusCode::kDeadlineExceeded);
  REQUIRE(absl::Now() - start < absl::Seconds(30));
  REQUIRE(SharedMemoryHeld() == 0);
}

TEST_CASE("one wrong element is found by the check across processes") {
  Pair pair("small");
  const auto rollout = pair.StartRollout();
  MemoryWeights weights(pair.layout, 3);
  REQUIRE(pair.Publish(1, weights, 1 << 16).ok());
  weights.tensor("model.embed_tokens.weight")[(2999 * 96 + 95) * 2 + 1] ^= std::byte{0x40};
  const WeightCheckReport report = pair.Check(weights);
  REQUIRE(report.mismatched == 1);
  REQUIRE(report.first_difference.find("model.embed_tokens.weight[2999, 95]") == 0);
}

}  // namespace tandem
