// The clients of a run's workers, over gRPC.
#pragma once

#include "common/config/config.h"
#include "controller/workers/worker_pool.h"

namespace tandem {

// With the deadlines and the TLS of cluster.*.
ClientFactory GrpcClients(const v1::Config& config);

}  // namespace tandem
