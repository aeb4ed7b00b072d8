// ClusterService: the RPCs that workers call. Translates gRPC into calls of registry, sample store
// and probe. No call occupies a thread while it waits, so a thousand workers need no thousand.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "controller/api/sample_disk_thread.h"
#include "controller/rollouts/parity_probe.h"
#include "controller/store/sample_store.h"
#include "controller/workers/rank_holders.h"
#include "controller/workers/worker_registry.h"
#include "tandem/v1/controller.grpc.pb.h"

namespace tandem {

class ClusterService final : public v1::ClusterService::CallbackService {
 public:
  // Trainers pull the samples of the step from `samples`, and those of the next one, if they are
  // generated already, from `upcoming`. `welcome` is the response to a registration, without the
  // incarnation and the number of threads; `project` the one whose workers may call over TLS
  // (ServedProject). The references must outlive the service.
  ClusterService(WorkerRegistry& registry,
                 RankHolders& holders,
                 SampleStore& samples,
                 SampleStore& upcoming,
                 ParityProbe& probe,
                 v1::RegisterResponse welcome,
                 ThreadsByRole threads,
                 std::string project)
      : registry_(registry),
        holders_(holders),
        samples_(samples),
        upcoming_(upcoming),
        probe_(probe),
        welcome_(std::move(welcome)),
        threads_(threads),
        project_(std::move(project)) {}

  // From now on the responses to heartbeats ask the workers to stop.
  void StopWorkers() { stopping_ = true; }

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override;
  grpc::ServerWriteReactor<v1::StreamSamplesResponse>* StreamSamples(
      grpc::CallbackServerContext* context, const v1::StreamSamplesRequest* request) override;
  grpc::ServerReadReactor<v1::PutLogProbsRequest>* PutLogProbs(
      grpc::CallbackServerContext* context, v1::PutLogProbsResponse* response) override;

 private:
  // Fills the next message of a stream, or leaves it empty at the end.
  using SampleSource = std::function<absl::Status(v1::StreamSamplesResponse*)>;

  // The worker's incarnation.
  absl::StatusOr<int64_t> Accept(const grpc::ServerContextBase* context,
                                 const v1::RegisterRequest& request);
  absl::Status TakeHeartbeat(const grpc::ServerContextBase* context,
                             const v1::HeartbeatRequest& request);
  // Whether the call's certificate, if it has one, is that of the worker for which it is made.
  absl::Status CheckOwn(const grpc::ServerContextBase* context, const WorkerKey& key) const;
  absl::Status CheckCaller(const grpc::ServerContextBase* context,
                           const v1::WorkerId& worker) const;
  absl::StatusOr<SampleSource> OpenSampleSource(const grpc::ServerContextBase* context,
                                                const v1::StreamSamplesRequest& request) const;
  absl::Status TakeLogProbs(const grpc::ServerContextBase* context,
                            const v1::PutLogProbsRequest& request);

  WorkerRegistry& registry_;
  RankHolders& holders_;
  SampleStore& samples_;
  SampleStore& upcoming_;
  ParityProbe& probe_;
  const v1::RegisterResponse welcome_;
  const ThreadsByRole threads_;
  const std::string project_;
  std::atomic<bool> stopping_ = false;
  SampleDiskThread disk_;
};

}  // namespace tandem
