// RolloutClient and TrainerClient over gRPC.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/net/channel.h"
#include "controller/workers/rollout_client.h"
#include "controller/workers/trainer_client.h"

namespace tandem {

// `timeout` bounds every call that does a phase's work (cluster.rpc_timeout_seconds).
absl::StatusOr<std::shared_ptr<RolloutClient>> MakeGrpcRolloutClient(const std::string& address,
                                                                     int64_t incarnation,
                                                                     absl::Duration timeout,
                                                                     const RpcSecurity& security);

// `timeout` bounds every call (cluster.rpc_timeout_seconds).
absl::StatusOr<std::shared_ptr<TrainerClient>> MakeGrpcTrainerClient(const std::string& address,
                                                                     int64_t incarnation,
                                                                     absl::Duration timeout,
                                                                     const RpcSecurity& security);

}  // namespace tandem
