#include <chrono>
#include <csignal>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/mutex.h"
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
  Service(CudaDevice* device, RolloutStates* states, WeightUpdates* updates)
      : parts_{device, states, updates} {}

  grpc::Status BeginUpdate(grpc::ServerContext*,
                           const v1::BeginUpdateRequest* request,
                           v1::BeginUpdateResponse* response) override {
    return Do([&](Parts& parts) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(Manifest manifest, FromProto(request->manifest()));
      response->set_pair_socket(parts.updates->pair_socket());
      // No request is running, so that closing admission is the whole pause.
      parts.states->CloseAdmission();
      parts.copying = false;
      return parts.updates->Begin({{request->version(), request->generation()},
                                   {request->slot_bytes(), request->slots(), request->direct()},
                                   std::move(manifest),
                                   request->scramble()});
    });
  }
  grpc::Status ApplyBucket(grpc::ServerContext*,
                           const v1::ApplyBucketRequest* request,
                           v1::ApplyBucketResponse*) override {
    const Clock::time_point called = Clock::now();
    return Do([&](Parts& parts) -> absl::Status {
      if (!parts.copying && !request->entries().empty()) {
        parts.copying = true;
        parts.first_bucket = called;
      }
      return parts.updates->Apply({request->version(), request->generation()}, request->slot(),
                                  FromProto(request->entries()));
    });
  }
  grpc::Status CommitUpdate(grpc::ServerContext*,
                            const v1::CommitUpdateRequest* request,
                            v1::CommitUpdateResponse*) override {
    return Do([&](Parts& parts) -> absl::Status {
      TANDEM_RETURN_IF_ERROR(parts.device->Synchronize());
      parts.copy_seconds = std::chrono::duration<double>(Clock::now() - parts.first_bucket).count();
      TANDEM_ASSIGN_OR_RETURN(const auto digests, FromProto(request->digests()));
      return parts.updates->Commit({request->version(), request->generation()}, digests);
    });
  }
  grpc::Status AbortUpdate(grpc::ServerContext*,
                           const v1::AbortUpdateRequest* request,
                           v1::AbortUpdateResponse* response) override {
    return Do([&](Parts& parts) {
      parts.updates->Abort({request->version(), request->generation()});
      response->set_version(parts.updates->version());
      return absl::OkStatus();
    });
  }
  grpc::Status GetDigests(grpc::ServerContext*,
                          const v1::GetDigestsRequest*,
                          v1::GetDigestsResponse* response) override {
    return Do([&](Parts& parts) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const std::vector<Digest> digests,
                              parts.updates->transaction().Digests());
      response->set_version(parts.updates->version());
      ToProto(ManifestOf(parts.updates->transaction().storage().layout()),
              response->mutable_manifest());
      ToProto(digests, response->mutable_digests());
      return absl::OkStatus();
    });
  }
  grpc::Status GetStatus(grpc::ServerContext*,
                         const v1::RolloutStatusRequest*,
                         v1::RolloutStatusResponse* response) override {
    return Do([&](Parts& parts) {
      const bool serves = parts.states->state() == RolloutState::kServing;
      response->set_state(serves ? v1::SERVING : v1::EMPTY);
      response->set_version(parts.updates->version());
      response->set_last_action(fmt::format("{}", parts.copy_seconds));
      return absl::OkStatus();
    });
  }

 private:
  struct Parts {
    CudaDevice* const device;
    RolloutStates* const states;
    WeightUpdates* const updates;
    bool copying = false;  // since the open update's first bucket
    Clock::time_point first_bucket = {};
    double copy_seconds = 0;
  };
  // Calls come on any thread, one of them at a time uses the device.
  template <typename Body>
  grpc::Status Do(Body&& body) {
    const MutexLock lock(parts_mutex_);
    const absl::Status used = parts_.device->UseOnThisThread();
    return ToGrpcStatus(used.ok() ? body(parts_) : used);
  }

  Mutex parts_mutex_;
  Parts parts_ ABSL_GUARDED_BY(parts_mutex_);
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
  RolloutStates states;
  states.set_mapped(true, true);
  TANDEM_ASSIGN_OR_RETURN(const auto updates,
                          WeightUpdates::Create(std::move(ops), &states,
                                                {.pair_socket = directory + "/pair.sock",
                                                 .transport = transport.get()}));
  Service service(&device, &states, updates.get());
  TANDEM_ASSIGN_OR_RETURN(const auto server,
                          RpcServer::Start("unix:" + directory + "/rollout.sock", {&service}, {}));
  if (write(kReadyDescriptor, "r", 1) != 1) return Internal("nobody waits for this rollout");
  while (true) pause();
}

}  // namespace tandem::testing
