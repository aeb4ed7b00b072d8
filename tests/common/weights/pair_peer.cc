#include "tests/common/weights/pair_peer.h"

#include <cstdlib>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/net/channel.h"
#include "tests/common/weights/ordered_client.h"
#include "tests/common/weights/pair_fixture.h"
#include "tests/common/weights/pair_service.h"
#include "tests/support/patience.h"

namespace tandem::testing {
namespace {

absl::Status RunRollout(char** argv) {
  TANDEM_ASSIGN_OR_RETURN(const auto device, MakePairDevice(argv[4]));
  const WeightLayout layout =
      WeightLayout::Build(PairSpec(argv[3]), DType::kBFloat16, device->format());
  TANDEM_ASSIGN_OR_RETURN(const auto weights,
                          device->device().Reserve("weights", layout.total_bytes(), nullptr));
  TANDEM_RETURN_IF_ERROR(weights->Map());
  WeightUpdatesOptions options;
  options.pair_socket = argv[2];
  options.transport = device->transport();
  TANDEM_ASSIGN_OR_RETURN(const auto slots, device->ListenForSlots());
  options.slot_listener = slots.get();
  TANDEM_ASSIGN_OR_RETURN(auto storage, device->Storage(&layout, weights->data()));
  RolloutStates states;
  states.set_mapped(true, true);
  TANDEM_ASSIGN_OR_RETURN(const auto updates,
                          WeightUpdates::Create(std::move(storage), &states, options));
  PairService service(device.get(), weights.get(), &states, updates.get(),
                      {argv[5], std::atoi(argv[6])});
  grpc::ServerBuilder builder;
  builder.AddListeningPort(argv[1], grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return Internal("cannot listen at {}", argv[1]);
  server->Wait();
  return absl::OkStatus();
}

// The fault strikes before a bucket is asked for; one of the device before that bucket is filled.
class FaultyClient : public OrderedClient {
 public:
  FaultyClient(std::shared_ptr<grpc::Channel> channel, PairDevice* device, PairFault fault)
      : OrderedClient(std::move(channel),
                      {.trainer_boot_id = std::to_string(getpid()),
                       .deadline = kPatience,
                       .over_tcp = device->over_tcp(),
                       .data = device->DataSecurity("rollout")}),
        device_(device),
        fault_(std::move(fault)) {}
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override {
    if (entries.empty()) return GrpcUpdateClient::StartApply(slot, entries);
    if (fault_.Step()) {
      TANDEM_RETURN_IF_ERROR(AwaitEarlier());
      fault_.Strike();
    }
    TANDEM_RETURN_IF_ERROR(GrpcUpdateClient::StartApply(slot, entries));
    return OccupyBefore(fault_.bucket);
  }
  absl::StatusOr<PeerConnection> Begin(const UpdateRequest& request,
                                       const ProducerSlots& slots) override {
    TANDEM_RETURN_IF_ERROR(OccupyBefore(0));
    return GrpcUpdateClient::Begin(request, slots);
  }

 private:
  absl::Status OccupyBefore(int bucket) {
    return fault_.kind == "occupy" && fault_.at == bucket ? device_->Occupy() : absl::OkStatus();
  }

  PairDevice* const device_;
  PairFault fault_;
};

absl::Status RunTrainer(char** argv) {
  TANDEM_ASSIGN_OR_RETURN(const auto device, MakePairDevice(argv[3]));
  const WeightLayout layout =
      WeightLayout::Build(PairSpec(argv[2]), DType::kBFloat16, device->format());
  const auto weights = device->Weights(layout, std::strtoull(argv[4], nullptr, 10),
                                       argv[9] == std::string("direct"));
  TANDEM_ASSIGN_OR_RETURN(auto channel, MakeChannel(argv[1]));
  FaultyClient client(channel, device.get(), {argv[7], std::atoi(argv[8])});
  const int64_t slot_bytes = std::atoll(argv[6]);
  WeightPublisher publisher(&layout, {.slot_bytes = slot_bytes,
                                      .direct_bytes = slot_bytes,
                                      .transport = device->transport(),
                                      .group_generation = std::atoll(argv[10])});
  return publisher.Publish(std::atoll(argv[5]), *weights, &client).status();
}

}  // namespace

int RunPairPeer(int argc, char** argv) {
  const std::string role = argc > 0 ? argv[0] : "";
  absl::Status status = InvalidArgument("rollout or trainer?");
  if (role == "rollout" && argc == 7) status = RunRollout(argv);
  if (role == "trainer" && argc == 11) status = RunTrainer(argv);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.ToString());
  return 1;
}

}  // namespace tandem::testing
