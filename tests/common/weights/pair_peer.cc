// One side of a pair in a process of its own, for pair_process_test:
//   pair_peer rollout ADDRESS PAIR_SOCKET SIZE FAULT AT   serves a WeightReceiver until killed
//   pair_peer trainer ADDRESS SIZE SEED VERSION SLOT_BYTES FAULT AT   publishes once
// FAULT is none, die (SIGKILL itself) or stall, at bucket AT.
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <absl/time/clock.h>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <unistd.h>

#include "common/base/status_macros.h"
#include "common/device/memory_region.h"
#include "common/ops/cpu/thread_pool.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_convert.h"
#include "common/wire/update_codec.h"
#include "rollout_worker/weights/weight_receiver.h"
#include "tandem/v1/rollout.grpc.pb.h"
#include "tests/common/weights/pair_fixture.h"
#include "tests/fakes/memory_weights.h"
#include "trainer_worker/weights/grpc_update_client.h"

namespace tandem {
namespace {

struct Fault {
  std::string kind = "none";
  int at = -1;
  int bucket = 0;
  void Step() {
    if (bucket++ != at) return;
    if (kind == "die") kill(getpid(), SIGKILL);
    if (kind == "stall") absl::SleepFor(absl::Minutes(1));
  }
};

class PairService : public v1::RolloutService::Service {
 public:
  PairService(const WeightLayout* layout, WeightReceiver* receiver, Fault fault)
      : layout_(layout), receiver_(receiver), fault_(std::move(fault)) {}

  grpc::Status BeginUpdate(grpc::ServerContext*,
                           const v1::BeginUpdateRequest* request,
                           v1::BeginUpdateResponse* response) override {
    std::lock_guard lock(mutex_);
    auto manifest = FromProto(request->manifest());
    if (!manifest.ok()) return ToGrpcStatus(manifest.status());
    response->set_pair_socket(receiver_->pair_socket());
    return ToGrpcStatus(receiver_->Begin({request->version(), request->generation(),
                                          request->slot_bytes(), request->slots(), *manifest}));
  }
  grpc::Status ApplyBucket(grpc::ServerContext*,
                           const v1::ApplyBucketRequest* request,
                           v1::ApplyBucketResponse*) override {
    std::lock_guard lock(mutex_);
    fault_.Step();
    const absl::Status status = receiver_->Apply(request->version(), request->generation(),
                                                 request->slot(), FromProto(request->entries()));
    if (absl::IsUnavailable(status)) last_action_ = std::string(status.message());
    return ToGrpcStatus(status);
  }
  grpc::Status CommitUpdate(grpc::ServerContext*,
                            const v1::CommitUpdateRequest* request,
                            v1::CommitUpdateResponse*) override {
    std::lock_guard lock(mutex_);
    auto digests = FromProto(request->digests());
    if (!digests.ok()) return ToGrpcStatus(digests.status());
    return ToGrpcStatus(receiver_->Commit(request->version(), request->generation(), *digests));
  }
  grpc::Status AbortUpdate(grpc::ServerContext*,
                           const v1::AbortUpdateRequest* request,
                           v1::AbortUpdateResponse* response) override {
    std::lock_guard lock(mutex_);
    receiver_->Abort(request->version(), request->generation());
    response->set_version(receiver_->core().version());
    return grpc::Status::OK;
  }
  grpc::Status GetDigests(grpc::ServerContext*,
                          const v1::GetDigestsRequest*,
                          v1::GetDigestsResponse* response) override {
    std::lock_guard lock(mutex_);
    response->set_version(receiver_->core().version());
    ToProto(ManifestOf(*layout_), response->mutable_manifest());
    ToProto(receiver_->core().Digests(), response->mutable_digests());
    return grpc::Status::OK;
  }
  grpc::Status ReadTensor(grpc::ServerContext*,
                          const v1::ReadTensorRequest* request,
                          v1::ReadTensorResponse* response) override {
    std::lock_guard lock(mutex_);
    auto rows = receiver_->ReadRows(request->name(), request->row(), request->rows());
    if (!rows.ok()) return ToGrpcStatus(rows.status());
    response->set_data(*rows);
    return grpc::Status::OK;
  }
  // As the engine does between its steps.
  grpc::Status GetStatus(grpc::ServerContext*,
                         const v1::RolloutStatusRequest*,
                         v1::RolloutStatusResponse* response) override {
    std::lock_guard lock(mutex_);
    const absl::Status peer = receiver_->PollPeer();
    if (!peer.ok()) last_action_ = std::string(peer.message());
    response->set_last_action(last_action_);
    response->set_version(receiver_->core().version());
    response->set_state(receiver_->core().updating()                ? v1::UPDATING
                        : receiver_->core().version() == kNoVersion ? v1::EMPTY
                                                                    : v1::SERVING);
    return grpc::Status::OK;
  }

 private:
  std::mutex mutex_;
  const WeightLayout* const layout_;
  WeightReceiver* const receiver_;
  Fault fault_;
  std::string last_action_;
};

absl::Status RunRollout(char** argv) {
  const WeightLayout layout = WeightLayout::Build(testing::PairSpec(argv[4]), DType::kBFloat16);
  TANDEM_ASSIGN_OR_RETURN(const auto region,
                          MemoryRegion::Reserve("weights", layout.total_bytes(), nullptr));
  TANDEM_RETURN_IF_ERROR(region->Map());
  WeightReceiverOptions options;
  options.pair_socket = argv[3];
  TANDEM_ASSIGN_OR_RETURN(
      const auto receiver,
      WeightReceiver::Create(&layout, region->data(), std::make_shared<ThreadPool>(1), options));
  PairService service(&layout, receiver.get(), {argv[5], std::atoi(argv[6])});
  grpc::ServerBuilder builder;
  builder.AddListeningPort(argv[2], grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return Internal("cannot listen at {}", argv[2]);
  server->Wait();
  return absl::OkStatus();
}

// Dies or stalls before it asks for a bucket.
class FaultyClient : public GrpcUpdateClient {
 public:
  FaultyClient(std::shared_ptr<grpc::Channel> channel, Fault fault)
      : GrpcUpdateClient(std::move(channel), {}), fault_(std::move(fault)) {}
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override {
    fault_.Step();
    return GrpcUpdateClient::StartApply(slot, entries);
  }

 private:
  Fault fault_;
};

absl::Status RunTrainer(char** argv) {
  const WeightLayout layout = WeightLayout::Build(testing::PairSpec(argv[3]), DType::kBFloat16);
  testing::MemoryWeights weights(layout, std::atoll(argv[4]));
  TANDEM_ASSIGN_OR_RETURN(auto channel, MakeChannel(argv[2]));
  FaultyClient client(channel, {argv[7], std::atoi(argv[8])});
  WeightPublisher publisher(&layout, {std::atoll(argv[6]), 2, nullptr});
  return publisher.Publish(std::atoll(argv[5]), weights, &client).status();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  absl::Status status = tandem::InvalidArgument("rollout or trainer?");
  if (role == "rollout" && argc == 7) status = tandem::RunRollout(argv);
  if (role == "trainer" && argc == 9) status = tandem::RunTrainer(argv);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.ToString());
  return 1;
}
