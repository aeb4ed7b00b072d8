#include "controller/assembly/grpc_clients.h"

#include "common/net/security.h"
#include "controller/assembly/run_options.h"
#include "controller/workers/grpc_rollout_client.h"
#include "controller/workers/grpc_trainer_client.h"
#include "tandem/v1/config.pb.h"

namespace tandem {

ClientFactory GrpcClients(const v1::Config& config) {
  const absl::Duration timeout = absl::Seconds(config.cluster().rpc_timeout_seconds());
  const RpcSecurity security = SecurityOf(config);
  return {.trainer =
              [timeout, security](const WorkerEntry& entry) {
                return MakeGrpcTrainerClient(entry.announcement.address, entry.incarnation, timeout,
                                             security);
              },
          .rollout =
              [timeout, security](const WorkerEntry& entry) {
                return MakeGrpcRolloutClient(entry.announcement.address, entry.incarnation, timeout,
                                             security);
              }};
}

}  // namespace tandem
