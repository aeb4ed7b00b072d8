// The trainer's gRPC service: converts messages, checks the incarnation, and runs calls on the
// engine thread. Contains no logic of its own.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "common/base/mutex.h"
#include "tandem/v1/trainer.grpc.pb.h"
#include "trainer_worker/engine_thread.h"
#include "trainer_worker/trainer.h"

namespace tandem {

// Thread-safe. Calls are few and block gRPC's threads.
class TrainerService final : public v1::TrainerService::Service {
 public:
  // `on_shutdown` is called by the Shutdown RPC; `on_device_lost` when a call has failed with
  // IsDeviceLost, possibly more than once. Neither may block.
  TrainerService(std::function<void()> on_shutdown,
                 std::function<void(const absl::Status&)> on_device_lost)
      : on_shutdown_(std::move(on_shutdown)), on_device_lost_(std::move(on_device_lost)) {}

  // Every call fails with UNAVAILABLE until this is called. Both objects must outlive the server.
  void SetReady(Trainer* trainer, EngineThread* engine, const v1::WorkerId& worker);

  grpc::Status Reset(grpc::ServerContext* context,
                     const v1::TrainerResetRequest* request,
                     v1::TrainerResetResponse* response) override;
  grpc::Status ForwardBackward(grpc::ServerContext* context,
                               const v1::ForwardBackwardRequest* request,
                               v1::ForwardBackwardResponse* response) override;
  grpc::Status OptimizerStep(grpc::ServerContext* context,
                             const v1::OptimizerStepRequest* request,
                             v1::OptimizerStepResponse* response) override;
  grpc::Status ComputeLogProbs(grpc::ServerContext* context,
                               const v1::ComputeLogProbsRequest* request,
                               v1::ComputeLogProbsResponse* response) override;
  grpc::Status SyncWeights(grpc::ServerContext* context,
                           const v1::SyncWeightsRequest* request,
                           v1::SyncWeightsResponse* response) override;
  grpc::Status CheckWeights(grpc::ServerContext* context,
                            const v1::CheckWeightsRequest* request,
                            v1::CheckWeightsResponse* response) override;
  grpc::Status SaveState(grpc::ServerContext* context,
                         const v1::SaveStateRequest* request,
                         v1::SaveStateResponse* response) override;
  grpc::Status GetStatus(grpc::ServerContext* context,
                         const v1::TrainerStatusRequest* request,
                         v1::TrainerStatusResponse* response) override;
  grpc::Status Shutdown(grpc::ServerContext* context,
                        const v1::TrainerShutdownRequest* request,
                        v1::TrainerShutdownResponse* response) override;

 private:
  struct Parts {
    Trainer* trainer = nullptr;
    EngineThread* engine = nullptr;
    v1::WorkerId worker;
  };
  // Unavailable before SetReady.
  absl::StatusOr<Parts> Ready() const;
  // Aborted if the call is for another incarnation.
  absl::StatusOr<Parts> PartsFor(int64_t incarnation) const;
  // Runs `work` on the engine thread; `fill` copies its result into the reply.
  template <typename T>
  grpc::Status Run(int64_t incarnation,
                   std::function<absl::StatusOr<T>(Trainer&)> work,
                   std::function<void(const T&)> fill);
  // The same, but Aborted if the call is for another generation of the group.
  template <typename T>
  grpc::Status RunInGroup(int64_t incarnation,
                          int64_t generation,
                          std::function<absl::StatusOr<T>(Trainer&)> work,
                          std::function<void(const T&)> fill);
  // Adds the worker, its phase and its last action to an error.
  grpc::Status Reply(absl::Status status) const;

  const std::function<void()> on_shutdown_;
  const std::function<void(const absl::Status&)> on_device_lost_;
  mutable Mutex parts_mutex_;
  Parts parts_ ABSL_GUARDED_BY(parts_mutex_);
};

}  // namespace tandem
