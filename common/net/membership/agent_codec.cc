#include "common/net/membership/agent_codec.h"

#include "common/base/status.h"
#include "common/net/worker_codec.h"

namespace tandem {
namespace {

absl::StatusOr<AgentProcess> FromProto(const v1::AgentProcess& proto) {
  TANDEM_ASSIGN_OR_RETURN(const WorkerKey key, WorkerKeyOf(proto));
  return AgentProcess{.key = key,
                      .pid = proto.pid(),
                      .starts = proto.starts(),
                      .ended_pid = proto.ended_pid(),
                      .exit_code = proto.exit_code(),
                      .exit_signal = proto.exit_signal()};
}

// Seconds of a peer that may be another build's: never below zero, and never no number.
absl::Duration FromSeconds(double seconds) {
  return seconds > 0 ? absl::Seconds(seconds) : absl::ZeroDuration();
}

}  // namespace

v1::AgentProcess ToProto(const AgentProcess& process) {
  v1::AgentProcess proto;
  SetWorkerKey(process.key, &proto);
  proto.set_pid(process.pid);
  proto.set_starts(process.starts);
  proto.set_ended_pid(process.ended_pid);
  proto.set_exit_code(process.exit_code);
  proto.set_exit_signal(process.exit_signal);
  return proto;
}

v1::AgentHeartbeatRequest ToProto(const AgentNews& news) {
  v1::AgentHeartbeatRequest proto;
  proto.set_protocol(news.protocol);
  proto.set_build(news.build);
  proto.set_build_id(news.build_id);
  proto.set_boot_id(news.host.boot_id);
  proto.set_node(news.host.node);
  proto.set_host_index(news.host_index);
  proto.set_hosts(news.hosts);
  proto.set_boot_nonce(news.boot_nonce);
  proto.set_pid(news.pid);
  proto.set_leaving(news.leaving);
  for (const AgentProcess& process : news.processes) *proto.add_processes() = ToProto(process);
  if (news.failure) {
    v1::AgentFailure* const failure = proto.mutable_failure();
    SetWorkerKey(news.failure->key, failure);
    failure->set_code(news.failure->code);
    failure->set_reason(news.failure->reason);
    failure->set_log(news.failure->log);
  }
  return proto;
}

absl::StatusOr<AgentNews> FromProto(const v1::AgentHeartbeatRequest& proto) {
  if (!IsNodeName(proto.node())) {
    return InvalidArgument(
        "the node of an agent is no name of 1 to 253 letters, digits, dots, hyphens and "
        "underscores");
  }
  AgentNews news{.protocol = proto.protocol(),
                 .build = proto.build(),
                 .build_id = proto.build_id(),
                 .host = {.boot_id = proto.boot_id(), .node = proto.node()},
                 .host_index = proto.host_index(),
                 .hosts = proto.hosts(),
                 .boot_nonce = proto.boot_nonce(),
                 .pid = proto.pid(),
                 .leaving = proto.leaving()};
  for (const v1::AgentProcess& process : proto.processes()) {
    TANDEM_ASSIGN_OR_RETURN(news.processes.emplace_back(), FromProto(process));
  }
  if (proto.has_failure()) {
    TANDEM_ASSIGN_OR_RETURN(const WorkerKey key, WorkerKeyOf(proto.failure()));
    news.failure = AgentFailure{.key = key,
                                .code = proto.failure().code(),
                                .reason = proto.failure().reason(),
                                .log = proto.failure().log()};
  }
  return news;
}

v1::AgentHeartbeatResponse ToProto(const AgentOrders& orders) {
  v1::AgentHeartbeatResponse proto;
  for (const AgentOrder& order : orders.processes) {
    v1::AgentOrder* const added = proto.add_processes();
    SetWorkerKey(order.key, added);
    added->set_device(order.device);
  }
  for (const AgentVictim& victim : orders.kill) {
    v1::AgentVictim* const added = proto.add_kill();
    SetWorkerKey(victim.key, added);
    added->set_pid(victim.pid);
  }
  proto.set_over(orders.over);
  proto.set_run_dir(orders.run_dir);
  const AgentLimits& limits = orders.limits;
  proto.set_heartbeat_seconds(absl::ToDoubleSeconds(limits.heartbeat));
  proto.set_controller_lost_seconds(absl::ToDoubleSeconds(limits.controller_lost));
  proto.set_max_restarts(limits.max_restarts);
  proto.set_restart_window_seconds(absl::ToDoubleSeconds(limits.restart_window));
  proto.set_log_max_bytes(limits.log_max_bytes);
  proto.set_log_files_to_keep(limits.log_files_to_keep);
  return proto;
}

absl::StatusOr<AgentOrders> FromProto(const v1::AgentHeartbeatResponse& proto) {
  AgentOrders orders{.over = proto.over(),
                     .run_dir = proto.run_dir(),
                     .limits = {.heartbeat = FromSeconds(proto.heartbeat_seconds()),
                                .controller_lost = FromSeconds(proto.controller_lost_seconds()),
                                .max_restarts = proto.max_restarts(),
                                .restart_window = FromSeconds(proto.restart_window_seconds()),
                                .log_max_bytes = proto.log_max_bytes(),
                                .log_files_to_keep = proto.log_files_to_keep()}};
  for (const v1::AgentOrder& order : proto.processes()) {
    TANDEM_ASSIGN_OR_RETURN(const WorkerKey key, WorkerKeyOf(order));
    orders.processes.push_back({key, order.device()});
  }
  for (const v1::AgentVictim& victim : proto.kill()) {
    TANDEM_ASSIGN_OR_RETURN(const WorkerKey key, WorkerKeyOf(victim));
    orders.kill.push_back({key, victim.pid()});
  }
  return orders;
}

}  // namespace tandem
