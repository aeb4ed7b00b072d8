// A rollout (and a trainer) as separate processes, and the trainer's end in the test.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include "common/base/numeric.h"
#include "common/device/ledger.h"
#include "common/net/channel.h"
#include "tandem/v1/rollout.grpc.pb.h"
#include "tests/common/weights/ordered_client.h"
#include "tests/common/weights/pair_device.h"
#include "tests/common/weights/pair_fixture.h"
#include "tests/fakes/memory_weights.h"
#include "tests/support/patience.h"
#include "tests/support/test_process.h"
#include "trainer_worker/weight_sync/grpc_update_client.h"
#include "trainer_worker/weight_sync/weight_check.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem::testing {

// A process of RunPairPeer; killed when it goes out of scope.
class Peer {
 public:
  explicit Peer(const std::vector<std::string>& arguments)
      : process_({.argv = Command(arguments)}) {}
  pid_t pid() const { return process_.pid(); }
  // Exit code, or -signal.
  int Wait(int signal_first = 0) {
    if (signal_first != 0) process_.Signal(signal_first);
    return process_.Wait();
  }

 private:
  static std::vector<std::string> Command(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = PairPeerCommand();
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }

  TestProcess process_;
};

struct Pair {
  // Of all trainers: those of an older one are refused.
  static constexpr int64_t kGeneration = 7;

  explicit Pair(const std::string& model_size, const std::string& pair_way = PairWays().front())
      : way(pair_way),
        device(MakePairDevice(pair_way).value()),
        size(device->Model(model_size)),
        layout(WeightLayout::Build(PairSpec(size), DType::kBFloat16, device->format())) {
    std::string path = "/tmp/tandem-pair-XXXXXX";
    REQUIRE(mkdtemp(path.data()) != nullptr);
    directory = path;
    address = "unix:" + directory + "/rollout.sock";
  }
  ~Pair() { std::filesystem::remove_all(directory); }

  // Of slots for "small": those that cut what there is instead into as many buckets, or some less.
  int64_t Slot(int64_t bytes) const { return size == "tiny" ? RoundUp(bytes / 32, 256) : bytes; }
  std::unique_ptr<MemoryWeights> Weights(uint64_t seed, bool direct = false) {
    return device->Weights(layout, seed, direct);
  }

  std::unique_ptr<Peer> StartRollout(const std::string& fault = "none", int at = -1) {
    auto peer = std::make_unique<Peer>(std::vector<std::string>{
        "rollout", address, directory + "/pair.sock", size, way, fault, std::to_string(at)});
    channel.reset();  // it would be shared, with the pauses between its attempts to connect
    channel = *MakeChannel(address);
    REQUIRE(channel->WaitForConnected(absl::ToChronoTime(absl::Now() + kPatience)));
    return peer;
  }
  std::unique_ptr<Peer> StartTrainer(int seed,
                                     int version,
                                     const std::string& fault,
                                     int at,
                                     int64_t slot_bytes = 65536,
                                     bool direct = false) {
    return std::make_unique<Peer>(std::vector<std::string>{
        "trainer", address, size, way, std::to_string(seed), std::to_string(version),
        std::to_string(Slot(slot_bytes)), fault, std::to_string(at), direct ? "direct" : "slots",
        std::to_string(kGeneration)});
  }
  absl::StatusOr<PublishReport> Publish(int64_t version,
                                        MemoryWeights& weights,
                                        int64_t slot_bytes,
                                        absl::Duration deadline = kPatience) {
    GrpcUpdateClient client(channel, {.trainer_boot_id = "boot",
                                      .deadline = deadline,
                                      .abort_deadline = deadline,
                                      .over_tcp = device->over_tcp(),
                                      .data = device->DataSecurity("rollout")});
    return PublishTo(client, version, weights, slot_bytes);
  }
  absl::StatusOr<PublishReport> PublishTo(UpdateClient& client,
                                          int64_t version,
                                          MemoryWeights& weights,
                                          int64_t slot_bytes) {
    PublishOptions options = {Slot(slot_bytes),
                              kSlots,
                              &ledger,
                              keep_bytes,
                              /*direct_bytes=*/Slot(slot_bytes),
                              device->transport()};
    options.group_generation = kGeneration;
    auto& publisher = publishers[{slot_bytes, keep_bytes}];
    if (publisher == nullptr) publisher = std::make_unique<WeightPublisher>(&layout, options);
    return publisher->Publish(version, weights, &client);
  }
  v1::RolloutStatusResponse Status() {
    grpc::ClientContext context;
    SetDeadline(context, kPatience);
    v1::RolloutStatusResponse response;
    const auto stub = v1::RolloutService::NewStub(channel);
    REQUIRE(stub->GetStatus(&context, {}, &response).ok());
    return response;
  }
  WeightCheckReport Check(MemoryWeights& weights) {
    GrpcUpdateClient client(channel, {.deadline = kPatience});
    const auto report = CheckWeights(layout, weights, &client);
    INFO(report.status().ToString());
    REQUIRE(report.ok());
    return *report;
  }

  const std::string way;
  const std::unique_ptr<PairDevice> device;
  const std::string size;
  std::string directory, address;
  WeightLayout layout;
  int64_t keep_bytes = 0;  // of slots
  Ledger ledger;
  std::shared_ptr<grpc::Channel> channel;
  // One for each size of slots, as a trainer has one.
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<WeightPublisher>> publishers;
};

// What a process has open; `part` of a name counts only those.
inline int OpenDescriptors(const std::string& process = "self", const std::string& part = "") {
  int open = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + process + "/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    open += target.find(part) != std::string::npos ? 1 : 0;
  }
  return open;
}
// Slots that are open or mapped in this process.
inline int SharedMemoryHeld() { return OpenDescriptors("self", "memfd:tandem-"); }

}  // namespace tandem::testing
