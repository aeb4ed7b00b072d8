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

// Tries to reach a worker at its address, once, and tells the answer on any thread, after a few
// seconds at most (health_client.h).
using Dialer = std::function<void(const std::string& address, std::function<void(absl::Status)>)>;

class ClusterService final : public v1::ClusterService::CallbackService {
 public:
  // Trainers pull the samples of the step in progress from `samples`, and send log-probs of them
  // there; for those of the next step, `upcoming` (StepContext) is asked. `welcome` is the response
  // to a registration, without the incarnation and the number of threads; `project` the one whose
  // workers may call over TLS (ServedProject). `dial` tries the addresses of workers that register;
  // null: they are believed. The references must outlive the service.
  ClusterService(WorkerRegistry& registry,
                 RankHolders& holders,
                 SampleStore& samples,
                 SampleStore* upcoming,
                 ParityProbe& probe,
                 v1::RegisterResponse welcome,
                 ThreadsByRole threads,
                 std::string project,
                 Dialer dial = nullptr)
      : registry_(registry),
        holders_(holders),
        samples_(samples),
        upcoming_(upcoming),
        probe_(probe),
        welcome_(std::move(welcome)),
        threads_(threads),
        project_(std::move(project)),
        dial_(std::move(dial)) {}

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

  // A registration that waits for its answer.
  struct Comer {
    Announcement announcement;
    std::string from;  // the address of its call, as gRPC writes it
    v1::RegisterResponse* response = nullptr;
    grpc::ServerUnaryReactor* reactor = nullptr;
  };
  // A port that the controller has not tried yet for this process.
  bool MustDial(const Announcement& announcement) const;
  // OK, or the refusal of a worker at whose address a call ended with `reached`: DeadlineExceeded
  // where the same call may succeed later.
  static absl::Status CheckReached(const Comer& comer, const absl::Status& reached);
  void Admit(const Comer& comer);
  static void Refuse(const Comer& comer, const absl::Status& why);
  absl::Status TakeHeartbeat(const grpc::ServerContextBase* context,
                             const v1::HeartbeatRequest& request);
  // Whether the call's certificate, if it has one, is that of the worker for which it is made.
  absl::Status CheckOwn(const grpc::ServerContextBase* context, const WorkerKey& key) const;
  absl::Status CheckCaller(const grpc::ServerContextBase* context,
                           const v1::WorkerId& worker) const;
  // The store with the samples of `step`; where none has them, the one that says so.
  SampleStore& StoreOf(int64_t step) const;
  absl::StatusOr<SampleSource> OpenSampleSource(const grpc::ServerContextBase* context,
                                                const v1::StreamSamplesRequest& request) const;
  absl::Status TakeLogProbs(const grpc::ServerContextBase* context,
                            const v1::PutLogProbsRequest& request);

  WorkerRegistry& registry_;
  RankHolders& holders_;
  SampleStore& samples_;
  SampleStore* const upcoming_;  // may be null
  ParityProbe& probe_;
  const v1::RegisterResponse welcome_;
  const ThreadsByRole threads_;
  const std::string project_;
  const Dialer dial_;
  std::atomic<bool> stopping_ = false;
  SampleDiskThread disk_;
};

}  // namespace tandem
