#include "controller/api/agent_service.h"

#include <optional>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/net/grpc_status.h"
#include "common/net/membership/agent_codec.h"

namespace tandem {

void AgentService::NoteEnded(const AgentNews& news) {
  for (const AgentProcess& process : news.processes) {
    if (process.ended_pid == 0) continue;
    const std::optional<WorkerEntry> worker = workers_.Find(process.key);
    const bool is_that = worker && !worker->ended && worker->announcement.host == news.host &&
                         worker->announcement.pid == process.ended_pid;
    if (!is_that) continue;
    LogWarn("{}: its process {} on {} has ended ({}), as the agent there says", process.key.Text(),
            process.ended_pid, news.host.Text(),
            process.exit_signal != 0 ? fmt::format("signal {}", process.exit_signal)
                                     : fmt::format("exit code {}", process.exit_code));
    workers_.MarkLost(process.key, worker->incarnation, WorkerLoss::kEnded);
  }
}

absl::StatusOr<AgentOrders> AgentService::Take(const v1::AgentHeartbeatRequest& request) {
  TANDEM_ASSIGN_OR_RETURN(const AgentNews news, FromProto(request));
  TANDEM_ASSIGN_OR_RETURN(const AgentAnswer answer, agents_.Beat(news));
  if (answer.is_new) {
    LogInfo("The agent of host {} registered: process {} on {}, one of {} hosts", news.host_index,
            news.pid, news.host.Text(), news.hosts);
  }
  if (news.leaving) {
    LogInfo("The agent of host {} on {} has left", news.host_index, news.host.Text());
  }
  NoteEnded(news);
  if (news.failure && !answer.orders.over) end_run_(FailureOf(news));
  return answer.orders;
}

grpc::ServerUnaryReactor* AgentService::Heartbeat(grpc::CallbackServerContext* context,
                                                  const v1::AgentHeartbeatRequest* request,
                                                  v1::AgentHeartbeatResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<AgentOrders> orders = Take(*request);
  if (orders.ok()) {
    *response = ToProto(*orders);
  } else {
    LogWarn("Refused an agent: {}", std::string(orders.status().message()));
  }
  reactor->Finish(ToGrpcStatus(orders.status()));
  return reactor;
}

}  // namespace tandem
