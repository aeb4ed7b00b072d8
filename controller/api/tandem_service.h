// TandemService: the API for users. Translates gRPC into calls of the run's control, store and
// rollouts.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "controller/plan/transfer_plan.h"
#include "controller/run/run_control.h"
#include "controller/step/step_context.h"
#include "controller/step/summary/last_syncs.h"
#include "controller/step/train_options.h"
#include "controller/store/post_mortem/event_log.h"
#include "controller/store/progress.h"
#include "controller/workers/agents/agent_registry.h"
#include "controller/workers/worker_registry.h"
#include "tandem/v1/controller.grpc.pb.h"

namespace tandem {

// All references must outlive the service.
struct TandemServiceParts {
  RunControl& control;
  const RunPosition& position;  // read between two steps only
  const StepContext& run;
  const TrainOptions& options;
  const WorkerRegistry& registry;
  ProgressRelay& progress;
  std::string run_id;
  std::string memory_plan;                // JSON; empty: no plan yet
  const EventLog* events = nullptr;       // of the run; null: none is kept
  const AgentRegistry* agents = nullptr;  // of its hosts; null: there are none
  std::optional<RouteInput> routes;       // of its weights; nullopt: not told
  const LastSyncs* syncs = nullptr;       // of finished steps; null: they are not kept
};

class TandemService final : public v1::TandemService::Service {
 public:
  explicit TandemService(TandemServiceParts parts)
      : parts_(std::move(parts)),
        started_(parts_.run.clock.Now()),
        memory_plan_(parts_.memory_plan) {}

  // For a plan that is made after the service was started. Thread-safe.
  void SetMemoryPlan(std::string json) {
    const MutexLock lock(memory_plan_mutex_);
    memory_plan_ = std::move(json);
  }

  grpc::Status GetStatus(grpc::ServerContext* context,
                         const v1::GetStatusRequest* request,
                         v1::GetStatusResponse* response) override;
  grpc::Status Run(grpc::ServerContext* context,
                   const v1::RunRequest* request,
                   v1::Operation* response) override;
  grpc::Status Step(grpc::ServerContext* context,
                    const v1::StepRequest* request,
                    v1::Operation* response) override;
  grpc::Status Pause(grpc::ServerContext* context,
                     const v1::PauseRequest* request,
                     v1::PauseResponse* response) override;
  grpc::Status Resume(grpc::ServerContext* context,
                      const v1::ResumeRequest* request,
                      v1::ResumeResponse* response) override;
  grpc::Status Stop(grpc::ServerContext* context,
                    const v1::StopRequest* request,
                    v1::StopResponse* response) override;
  grpc::Status WaitOperation(grpc::ServerContext* context,
                             const v1::WaitOperationRequest* request,
                             v1::Operation* response) override;
  grpc::Status ListSteps(grpc::ServerContext* context,
                         const v1::ListStepsRequest* request,
                         v1::ListStepsResponse* response) override;
  grpc::Status ListSamples(grpc::ServerContext* context,
                           const v1::ListSamplesRequest* request,
                           v1::ListSamplesResponse* response) override;
  grpc::Status Generate(grpc::ServerContext* context,
                        const v1::UserGenerateRequest* request,
                        v1::UserGenerateResponse* response) override;
  grpc::Status Evaluate(grpc::ServerContext* context,
                        const v1::EvaluateRequest* request,
                        v1::EvaluateResponse* response) override;
  grpc::Status CheckWeights(grpc::ServerContext* context,
                            const v1::CheckRequest* request,
                            v1::CheckResponse* response) override;

 private:
  absl::StatusOr<GroupRequest> MakeGroup(const v1::UserGenerateRequest& request);
  std::string memory_plan() const {
    const MutexLock lock(memory_plan_mutex_);
    return memory_plan_;
  }

  const TandemServiceParts parts_;
  const Instant started_;
  mutable Mutex memory_plan_mutex_;
  std::string memory_plan_ ABSL_GUARDED_BY(memory_plan_mutex_);
  std::atomic<uint64_t> generate_calls_ = 0;
};

}  // namespace tandem
