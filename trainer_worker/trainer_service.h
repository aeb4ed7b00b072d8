// The trainer's gRPC service: converts messages, checks the incarnation, and runs calls on the
// engine thread. Contains no logic of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace grpc {
class Service;
}

namespace tandem {

class EngineThread;
class Trainer;
namespace v1 {
class WorkerId;
}

// The folders in which paths of calls must lie (common/process/files/confined_path.h).
struct CallFolders {
  std::vector<std::string> sockets;  // of Reset's rendezvous
  std::vector<std::string> loaded;   // checkpoints of Reset
  std::vector<std::string> saved;    // of SaveState
};

// Thread-safe. Calls are few and block gRPC's threads.
class TrainerService {
 public:
  // `on_shutdown` is called by the Shutdown RPC; `on_device_lost` when a call has failed with
  // IsDeviceLost, possibly more than once. Neither may block.
  static std::unique_ptr<TrainerService> Create(
      std::function<void()> on_shutdown, std::function<void(const absl::Status&)> on_device_lost);
  virtual ~TrainerService() = default;

  // Every call fails with UNAVAILABLE until this is called. Both objects must outlive the server.
  virtual void SetReady(Trainer* trainer,
                        EngineThread* engine,
                        const v1::WorkerId& worker,
                        const CallFolders& folders) = 0;
  // The service to pass to RpcServer::Start; owned by this object.
  virtual grpc::Service* service() = 0;
};

}  // namespace tandem
