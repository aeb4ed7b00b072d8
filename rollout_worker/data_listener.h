// Whether and where a rollout lets trainers connect to fill its slots.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/net/worker_program.h"
#include "common/weights/tcp/slot_listener.h"

namespace tandem::v1 {
class Config;
}  // namespace tandem::v1

namespace tandem {

// Whether a trainer may be on another host, or weight_sync.transport has it act as if it were.
// `address` is that of the rollout's calls: a Unix socket is for its own host alone.
bool NeedsDataListener(const v1::Config& config, const std::string& address);

// A port of cluster.port_range on the interface that `address` names, 127.0.0.1 for a Unix socket;
// null where none is needed. For trainers of this run, with TLS where its calls have it, unless
// cluster.data_tls is false. Errors as of ListenForData and DataSecurity.
absl::StatusOr<std::unique_ptr<SlotListener>> ListenForSlots(const v1::Config& config,
                                                             const std::string& address,
                                                             const WorkerFlags& flags);

}  // namespace tandem
