// Ends requests at several rollouts at once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "controller/workers/rollout_client.h"

namespace tandem {

struct RequestsToAbort {
  std::shared_ptr<RolloutClient> client;
  int rank = 0;
  std::vector<std::string> request_ids;  // at least one
};

// RolloutClient::Abort on a thread for each, so that one that hangs holds up no other; returns when
// all have answered. One that fails is logged: whoever waits for its samples sees what became of
// it.
void AbortRequests(const std::vector<RequestsToAbort>& wanted);

}  // namespace tandem
