// One Generate call: events go out as fast as the peer takes them, in the order they appeared.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <grpcpp/grpcpp.h>

#include "rollout_worker/engine.h"
#include "rollout_worker/generation/generator.h"
#include "tandem/v1/rollout.grpc.pb.h"

namespace tandem {

// Filled by the engine thread, emptied by gRPC's. Keeps itself alive until gRPC is done with it.
// What waits to be sent is bounded by the request: n samples of max_tokens tokens.
class GenerateStream final : public grpc::ServerWriteReactor<v1::GenerateEvent>,
                             public GenerationSink {
 public:
  static std::shared_ptr<GenerateStream> Make();

  void OnTokens(const TokenDelta& delta) override;
  void OnFinished(const Sample& sample) override;
  void OnEnd(const absl::Status& status) override;
  bool cancelled() const override { return cancelled_; }

  void OnWriteDone(bool ok) override;
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override;

 private:
  GenerateStream() = default;
  void Push(v1::GenerateEvent event);

  std::mutex mutex_;                      // events_, ended_, status_
  std::deque<v1::GenerateEvent> events_;  // the first is being written, if any
  bool ended_ = false;
  grpc::Status status_;
  std::atomic<bool> cancelled_{false};
  std::shared_ptr<GenerateStream> self_;  // until OnDone
};

// gRPC in front of the engine: converts, checks the incarnation, enqueues. No logic of its own.

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
