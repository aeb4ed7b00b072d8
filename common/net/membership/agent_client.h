// An agent's calls to the controller: the first until it answers, then beats from a thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/net/security/rpc_security.h"
#include "common/types/agent_news.h"

namespace tandem {

struct AgentClientOptions {
  std::string controller_address;
  RpcSecurity security;
  Clock* clock = &RealClock();  // for how long a controller has not answered; outlives the client
};

// Lifecycle: Connect -> Join -> Start -> (BeatNow)* -> Leave. Thread-safe.
class AgentClient {
 public:
  // Connects lazily. Errors as MakeChannel.
  static absl::StatusOr<std::unique_ptr<AgentClient>> Connect(AgentClientOptions options);
  virtual ~AgentClient() = default;  // stops the beats; no function is called afterwards

  // Blocks until the controller has answered; retries while it is not up, and while another agent
  // has the host's index and may be about to end, for up to `timeout`. Unavailable: no controller
  // within `timeout`. Any other code: refused, the message says why.
  virtual absl::StatusOr<AgentOrders> Join(const AgentNews& news, absl::Duration timeout) = 0;

  struct Events {
    std::function<AgentNews()> news;                    // what a beat tells
    std::function<void(const AgentOrders&)> on_orders;  // of each answer
    // Called at most once, and no other after it. Unavailable: no controller for
    // limits.controller_lost. AlreadyExists: another agent has taken the host's index. Any other:
    // refused.
    std::function<void(const absl::Status&)> on_end;
  };
  // Sends a beat every limits.heartbeat. All of `events` are called from one thread of the
  // client's.
  virtual void Start(const AgentLimits& limits, Events events) = 0;
  // The next beat is due now.
  virtual void BeatNow() = 0;
  // Ends the beats, then tells the controller that the host's index is free, once, within two
  // seconds; a controller that does not answer finds out itself.
  virtual void Leave(AgentNews news) = 0;
};

}  // namespace tandem
