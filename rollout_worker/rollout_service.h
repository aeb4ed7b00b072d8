// The rollout's gRPC service: converts messages, checks the incarnation, and runs calls on the
// engine thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rollout_worker/engine.h"

namespace grpc {
class Service;
}

namespace tandem {

namespace v1 {
class WorkerId;
}

// Thread-safe.
class RolloutService {
 public:
  // `on_shutdown` is called by the Shutdown RPC and must not block.
  static std::unique_ptr<RolloutService> Create(std::function<void()> on_shutdown);
  virtual ~RolloutService() = default;

  // Every call fails with UNAVAILABLE until this is called. `engine` must outlive the server.
  virtual void SetReady(Engine* engine, const v1::WorkerId& worker) = 0;
  // The service to pass to RpcServer::Start; owned by this object.
  virtual grpc::Service* service() = 0;
};

}  // namespace tandem
