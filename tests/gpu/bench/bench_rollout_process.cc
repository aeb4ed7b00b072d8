#include <chrono>
#include <csignal>
#include <mutex>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/device/cuda/cuda_device.h"
#include "common/net/grpc_status.h"
#include "common/net/server.h"
#include "common/net/update_codec.h"
#include "common/weights/cuda/cuda_storage_ops.h"
#include "common/weights/cuda/cuda_transport.h"
#include "rollout_worker/weights/rollout_state.h"
#include "rollout_worker/weights/weight_updates.h"
#include "tandem/v1/rollout.grpc.pb.h"
#include "tests/gpu/bench/bench_rollout.h"
#include "tests/gpu/qwen3.h"

namespace tandem::testing {
namespace {

using Clock = std::chrono::steady_clock;

class Service final : public v1::RolloutService::Service {
 public:
  Service(CudaDevice* device, WeightReceiver* receiver) : device_(device), receiver_(receiver) {}

  grpc::Status BeginUpdate(grpc::ServerContext*,
                           const v1::BeginUpdateRequest* request,
                           v1::BeginUpdateResponse* response) override {
    return Do([&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(Manifest manifest, FromProto(request->manifest()));
      response->set_pair_socket(receiver_->pair_socket());
      // The pause: nothing runs, so that the gate is all there is to close.
      if (state_.state() == RolloutState::kServing) TANDEM_RETURN_IF_ERROR(Handle(kDrain));
      TANDEM_RETURN_IF_ERROR(
          receiver_->Begin({request->version(),
                            request->generation(),
                            {request->slot_bytes(), request->slots(), request->direct()},
                            std::move(manifest),
                            request->scramble()}));
      copying_ = false;
      return Handle(kBegin);
    });
  }
  grpc::Status ApplyBucket(grpc::ServerContext*,
                           const v1::ApplyBucketRequest* request,
                           v1::ApplyBucketResponse*) override {
    const Clock::time_point called = Clock::now();
    return Do([&]() -> absl::Status {
      if (!copying_ && !request->entries().empty()) {
        copying_ = true;
        first_bucket_ = called;
      }
      TANDEM_RETURN_IF_ERROR(Handle(kApply));
      return receiver_->Apply(request->version(), request->generation(), request->slot(),
                              FromProto(request->entries()));
    });
  }
  grpc::Status CommitUpdate(grpc::ServerContext*,
                            const v1::CommitUpdateRequest* request,
                            v1::CommitUpdateResponse*) override {
    return Do([&]() -> absl::Status {
      TANDEM_RETURN_IF_ERROR(device_->Synchronize());
      copy_seconds_ = std::chrono::duration<double>(Clock::now() - first_bucket_).count();
      TANDEM_ASSIGN_OR_RETURN(const auto digests, FromProto(request->digests()));
      const absl::Status committed =
          receiver_->Commit(request->version(), request->generation(), digests);
      TANDEM_RETURN_IF_ERROR(Handle(committed.ok() ? kCommit : kAbort));
      return committed;
    });
  }
  grpc::Status AbortUpdate(grpc::ServerContext*,
                           const v1::AbortUpdateRequest* request,
                           v1::AbortUpdateResponse* response) override {
    return Do([&]() -> absl::Status {
      receiver_->Abort(request->version(), request->generation());
      response->set_version(receiver_->core().version());
      return Handle(kAbort);
    });
  }
  grpc::Status GetDigests(grpc::ServerContext*,
                          const v1::GetDigestsRequest*,
                          v1::GetDigestsResponse* response) override {
    return Do([&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const std::vector<Digest> digests, receiver_->core().Digests());
      response->set_version(receiver_->core().version());
      ToProto(ManifestOf(receiver_->core().storage().layout()), response->mutable_manifest());
      ToProto(digests, response->mutable_digests());
      return absl::OkStatus();
    });
  }
  grpc::Status GetStatus(grpc::ServerContext*,
                         const v1::RolloutStatusRequest*,
                         v1::RolloutStatusResponse* response) override {
    return Do([&] {
      const bool serves = state_.state() == RolloutState::kServing;
      response->set_state(serves ? v1::SERVING : v1::EMPTY);
      response->set_version(receiver_->core().version());
      response->set_last_action(fmt::format("{}", copy_seconds_));
      return absl::OkStatus();
    });
  }

 private:
  using enum RolloutEvent;

  // Calls come on any thread, one of them at a time uses the device.
  template <typename Body>
  grpc::Status Do(Body&& body) {
    std::lock_guard lock(mutex_);
    const absl::Status used = device_->UseOnThisThread();
    return ToGrpcStatus(used.ok() ? body() : used);
  }
  absl::Status Handle(RolloutEvent event) {
    return state_.Handle(event, {.weights_mapped = true,
                                 .weights_whole = receiver_->core().version() != kNoVersion,
                                 .kv_mapped = true,
                                 .applied = receiver_->core().applied()});
  }

  std::mutex mutex_;
  CudaDevice* const device_;
  WeightReceiver* const receiver_;
  RolloutStateMachine state_;
  bool copying_ = false;  // since the open update's first bucket
  Clock::time_point first_bucket_;
  double copy_seconds_ = 0;
};

}  // namespace

absl::Status RunBenchRollout(CudaApi* cuda, const std::string& size, const std::string& directory) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const WeightLayout layout =
      WeightLayout::Build(Qwen3(size), DType::kBFloat16, WeightFormat::kRowMajor);
  TANDEM_RETURN_IF_ERROR(SkipLateStream(*cuda));
  TANDEM_ASSIGN_OR_RETURN(auto context, CudaContext::Create(cuda, 0));
  CudaDevice device(std::move(context));
  TANDEM_ASSIGN_OR_RETURN(const auto storage,
                          device.Reserve("weights", layout.total_bytes(), nullptr));
  TANDEM_RETURN_IF_ERROR(storage->Map());
  TANDEM_ASSIGN_OR_RETURN(auto ops,
                          CreateCudaStorageOps(&layout, storage->data(), &device.context()));
  TANDEM_ASSIGN_OR_RETURN(const auto transport, CudaTransport::Create(&device.context(), "auto"));
  TANDEM_ASSIGN_OR_RETURN(
      const auto receiver,
      WeightReceiver::Create(
          std::move(ops), {.pair_socket = directory + "/pair.sock", .transport = transport.get()}));
  Service service(&device, receiver.get());
  TANDEM_ASSIGN_OR_RETURN(const auto server,
                          RpcServer::Start("unix:" + directory + "/rollout.sock", {&service}));
  if (write(kReadyDescriptor, "r", 1) != 1) return Internal("nobody waits for this rollout");
  while (true) pause();
}

}  // namespace tandem::testing
