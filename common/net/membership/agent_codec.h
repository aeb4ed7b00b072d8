// Converts what agents and the controller tell each other to protobuf and back.
#pragma once

#include <absl/status/statusor.h>

#include "common/types/agent_news.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {

v1::AgentHeartbeatRequest ToProto(const AgentNews& news);
// InvalidArgument: a role that is none of a worker, or a node that is no name.
absl::StatusOr<AgentNews> FromProto(const v1::AgentHeartbeatRequest& proto);

v1::AgentHeartbeatResponse ToProto(const AgentOrders& orders);
// InvalidArgument: a role that is none of a worker.
absl::StatusOr<AgentOrders> FromProto(const v1::AgentHeartbeatResponse& proto);

v1::AgentProcess ToProto(const AgentProcess& process);

}  // namespace tandem
