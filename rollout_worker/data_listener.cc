#include "rollout_worker/data_listener.h"

#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/net/addresses/data_listener.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

bool IsUnix(const std::string& address) { return address.starts_with("unix:"); }

}  // namespace

bool NeedsDataListener(const v1::Config& config, const std::string& address) {
  if (config.weight_sync().transport() == "tcp") return true;
  const Topology topology = TopologyOf(config);
  // Apart, one host may have all trainers and another all rollouts.
  return (topology.apart || topology.several_hosts()) && !IsUnix(address);
}

absl::StatusOr<std::unique_ptr<SlotListener>> ListenForSlots(const v1::Config& config,
                                                             const std::string& address,
                                                             const WorkerFlags& flags) {
  if (!NeedsDataListener(config, address)) return nullptr;
  const bool data_tls = config.cluster().data_tls();
  const PortRange ports = PortRangeOf(config.cluster().port_range());
  DataListenOptions options{.server = IsUnix(address) ? "127.0.0.1:0" : address,
                            .first_port = ports.first,
                            .last_port = ports.last,
                            .clear_text = !data_tls,
                            .network = flags.network,
                            .controller = flags.controller};
  TANDEM_ASSIGN_OR_RETURN(options.security,
                          DataSecurity(flags.security, {"trainer", "rollout"}, data_tls));
  TANDEM_ASSIGN_OR_RETURN(DataListener data, ListenForData(options));
  LogInfo("weights over TCP: trainers connect to {}, {}", data.address,
          options.security.enabled() ? "with TLS" : "in clear text");
  return std::make_unique<SlotListener>(std::move(data.listener), std::move(data.address),
                                        options.security.project);
}

}  // namespace tandem
