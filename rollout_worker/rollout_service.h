// gRPC in front of the engine: converts, checks the incarnation, enqueues. No logic of its own.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include <grpcpp/grpcpp.h>

#include "rollout_worker/engine.h"
#include "tandem/v1/rollout.grpc.pb.h"

namespace tandem {

// Thread-safe. Generate runs on callbacks, so that thousands of streams need no threads; the other
// calls are few and wait in gRPC's threads.
class RolloutService final
    : public v1::RolloutService::WithCallbackMethod_Generate<v1::RolloutService::Service> {
 public:
  // `on_shutdown` is called by the Shutdown RPC and must not block.
  explicit RolloutService(std::function<void()> on_shutdown)
      : on_shutdown_(std::move(on_shutdown)) {}

  // Until then every call is UNAVAILABLE. `engine` must outlive the server.
  void SetReady(Engine* engine, const v1::WorkerId& worker);

  grpc::ServerWriteReactor<v1::GenerateEvent>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::Status Abort(grpc::ServerContext* context,
                     const v1::AbortRequest* request,
                     v1::AbortResponse* response) override;
  grpc::Status Sleep(grpc::ServerContext* context,
                     const v1::SleepRequest* request,
                     v1::SleepResponse* response) override;
  grpc::Status Wake(grpc::ServerContext* context,
                    const v1::WakeRequest* request,
                    v1::WakeResponse* response) override;
  grpc::Status BeginUpdate(grpc::ServerContext* context,
                           const v1::BeginUpdateRequest* request,
                           v1::BeginUpdateResponse* response) override;
  grpc::Status ApplyBucket(grpc::ServerContext* context,
                           const v1::ApplyBucketRequest* request,
                           v1::ApplyBucketResponse* response) override;
  grpc::Status CommitUpdate(grpc::ServerContext* context,
                            const v1::CommitUpdateRequest* request,
                            v1::CommitUpdateResponse* response) override;
  grpc::Status AbortUpdate(grpc::ServerContext* context,
                           const v1::AbortUpdateRequest* request,
                           v1::AbortUpdateResponse* response) override;
  grpc::Status GetDigests(grpc::ServerContext* context,
                          const v1::GetDigestsRequest* request,
                          v1::GetDigestsResponse* response) override;
  grpc::Status ReadTensor(grpc::ServerContext* context,
                          const v1::ReadTensorRequest* request,
                          v1::ReadTensorResponse* response) override;
  grpc::Status VerifyWeights(grpc::ServerContext* context,
                             const v1::VerifyWeightsRequest* request,
                             v1::VerifyWeightsResponse* response) override;
  grpc::Status GetStatus(grpc::ServerContext* context,
                         const v1::RolloutStatusRequest* request,
                         v1::RolloutStatusResponse* response) override;
  grpc::Status Shutdown(grpc::ServerContext* context,
                        const v1::RolloutShutdownRequest* request,
                        v1::RolloutShutdownResponse* response) override;

 private:
  // Unavailable before SetReady.
  absl::StatusOr<Engine*> ReadyEngine() const;
  // Aborted if the caller means another incarnation.
  absl::StatusOr<Engine*> EngineFor(int64_t incarnation) const;
  // Adds worker, phase and last action to an error.
  grpc::Status Reply(absl::Status status) const;

  const std::function<void()> on_shutdown_;
  mutable std::mutex mutex_;  // engine_, worker_
  Engine* engine_ = nullptr;
  v1::WorkerId worker_;
};

}  // namespace tandem
