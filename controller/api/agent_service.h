// AgentService: the RPC that agents of hosts call. Translates gRPC into calls of the registries.
#pragma once

#include <functional>
#include <utility>

#include <absl/status/status.h>

#include "controller/workers/agents/agent_registry.h"
#include "controller/workers/worker_registry.h"
#include "tandem/v1/controller.grpc.pb.h"

namespace tandem {

class AgentService final : public v1::AgentService::CallbackService {
 public:
  // `end_run` is called with the reason when an agent reports a worker that it cannot mend, maybe
  // several times and from any thread. The references must outlive the service.
  AgentService(AgentRegistry& agents,
               WorkerRegistry& workers,
               std::function<void(const absl::Status&)> end_run)
      : agents_(agents), workers_(workers), end_run_(std::move(end_run)) {}

  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::AgentHeartbeatRequest* request,
                                      v1::AgentHeartbeatResponse* response) override;

 private:
  absl::StatusOr<AgentOrders> Take(const v1::AgentHeartbeatRequest& request);
  // Frees the ranks of processes that have ended: the controller does not see another host's.
  void NoteEnded(const AgentNews& news);

  AgentRegistry& agents_;
  WorkerRegistry& workers_;
  const std::function<void(const absl::Status&)> end_run_;
};

}  // namespace tandem
