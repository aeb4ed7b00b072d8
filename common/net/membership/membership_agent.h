// A worker's membership in a job: registration, then heartbeats until the controller or the worker
// ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/build_info.h"
#include "common/base/clock.h"
#include "common/net/channel.h"
#include "common/types/host_id.h"
#include "common/types/ledger_snapshot.h"
#include "common/types/numerics_choices.h"
#include "common/types/worker_load.h"
#include "tandem/v1/controller.pb.h"
#include "tandem/v1/types.pb.h"

namespace tandem {

struct JoinOptions {
  std::string controller_address;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int rank = 0;
  std::string device;          // "cpu:0"
  std::string listen_address;  // where others reach this worker's gRPC server
  HostId host;                 // of this process
  int64_t device_memory_bytes = 0;
  std::string device_uuid;  // of a GPU
  BuildInfo build;          // of this program
  RpcSecurity security;
  Clock* clock = &RealClock();  // for how long a controller has not answered; outlives the agent
};

// The contents of a heartbeat. Must be cheap to collect without waiting for the engine thread.
struct WorkerHealth {
  std::string phase;
  int64_t version = -1;  // weight version, -1 for none
  std::string last_action;
  LedgerSnapshot ledger;
  std::string numerics_class;               // empty until known
  std::optional<GeneratorLoad> generation;  // of a rollout
  std::optional<TrainingLoad> training;     // of a trainer
};

// Lifecycle: Join -> (load tokenizer and model) -> SetTokenizerAndNumerics -> StartHeartbeats.
// The worker keeps its incarnation for life: when the controller comes back after a restart, the
// agent registers again and brings the incarnation along. Thread-safe.
class MembershipAgent {
 public:
  // Blocks until the controller has answered; retries while it is not up or answers that it has not
  // reached this worker in time, for up to `timeout`. Unavailable: neither within `timeout`. Any
  // other code: refused, the message says why (exit 64).
  static absl::StatusOr<std::unique_ptr<MembershipAgent>> Join(JoinOptions options,
                                                               absl::Duration timeout);
  virtual ~MembershipAgent() = default;  // stops the heartbeats; on_end is not called afterwards

  // The reply to the first registration: incarnation, config, run directory, vocabulary limit...
  virtual const v1::RegisterResponse& registration() const = 0;
  virtual int64_t incarnation() const = 0;
  virtual v1::WorkerId worker_id() const = 0;

  // Sends the worker's tokenizer (empty for workers without one) and numerics to the controller,
  // which then counts the worker as ready. InvalidArgument or FailedPrecondition: refused (exit
  // 64).
  virtual absl::Status SetTokenizerAndNumerics(const std::string& tokenizer_digest,
                                               const WorkerNumerics& numerics) = 0;
  // Where this worker's peers on other hosts reach it, for the calls to the controller that follow.
  virtual void SetDataAddress(const std::string& address) = 0;

  // Sends `health()` and the progress of the process's threads (common/base/progress.h) every
  // cluster.heartbeat_seconds from a thread of its own. `on_end` is called at most once, from that
  // thread: OK: asked to stop (exit 0); Aborted: another process took this rank (exit 0);
  // Unavailable: no controller for cluster.controller_lost_seconds (exit 69); Internal: lost, as
  // the engine stands still (exit 70); any other: refused at re-registration (exit 64).
  virtual void StartHeartbeats(std::function<WorkerHealth()> health,
                               std::function<void(absl::Status)> on_end) = 0;
};

}  // namespace tandem
