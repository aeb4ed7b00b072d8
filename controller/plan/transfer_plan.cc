#include "controller/plan/transfer_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/lora/lora_spec.h"
#include "common/memory/memory_formulas.h"
#include "common/types/batch_limits.h"
#include "common/types/weight_chain.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

constexpr double kBytesOfGbit = 1e9 / 8;

int64_t ElementBytes(const v1::Config& config) {
  return config.model().compute_dtype() == "float32" ? 4 : 2;
}

// Parameters of the adapters that are trained; 0: all weights are.
int64_t AdapterParameters(const ModelSpec& spec, const v1::Config& config) {
  // Targets that the model lacks are reported elsewhere (lora_checks.h).
  const auto lora = MakeLoraSpec(spec, LoraOptionsOf(config));
  return lora.ok() ? lora->parameters() : 0;
}

bool SendsAdaptersAlone(const v1::Config& config) {
  return config.model().lora().rank() > 0 && !config.model().lora().merge();
}

// Ranks from 0 in equal numbers on hosts from `first_host` on.
std::vector<int> HostsByRank(int workers, int per_host, int first_host) {
  std::vector<int> hosts;
  for (int rank = 0; rank < workers; ++rank) hosts.push_back(first_host + rank / per_host);
  return hosts;
}

WorkerHosts HostsOf(const Topology& topology, bool rollouts_elsewhere) {
  return {.of_trainer = HostsByRank(topology.trainers, topology.trainers_per_host(), 0),
          .of_rollout = HostsByRank(topology.rollouts, topology.rollouts_per_host(),
                                    rollouts_elsewhere ? topology.trainer_hosts : 0)};
}

Carrier CarrierOf(const RouteInput& input, bool between_hosts) {
  if (between_hosts || input.transport == "tcp")
    return input.tls ? Carrier::kTcpTls : Carrier::kTcp;
  const bool handles = input.gpu && !input.topology.apart && input.transport != "shm";
  return handles ? Carrier::kIpc : Carrier::kSharedMemory;
}

// How many routes of each round leave a host, and reach it.
class SharedLinks {
 public:
  void Add(int round, int from, int to) {
    ++out_[{round, from}];
    ++in_[{round, to}];
  }
  int Sharing(int round, int from, int to) const {
    return std::max(out_.at({round, from}), in_.at({round, to}));
  }

 private:
  std::map<std::pair<int, int>, int> out_, in_;  // by round and host
};

bool IsTcp(const PlannedRoute& route) {
  return route.over == Carrier::kTcp || route.over == Carrier::kTcpTls;
}

// Gives the routes of one trainer their rounds, as controller/rollouts/fan_out.h does: by rank, or
// those over TCP last and in one chain, if there are enough. `routes` are by rollout.
void DivideIntoRounds(const RouteInput& input,
                      const WorkerHosts& hosts,
                      int trainer,
                      std::vector<PlannedRoute>* routes) {
  std::vector<int> in_turn, over_tcp;
  for (const PlannedRoute& route : *routes) {
    if (route.trainer != trainer) continue;
    const bool may_chain = input.shortest_chain > 0 && IsTcp(route);
    (may_chain ? over_tcp : in_turn).push_back(route.rollout);
  }
  const auto route_of = [routes](int rollout) -> PlannedRoute& {
    return (*routes)[static_cast<size_t>(rollout)];
  };
  int round = 0;
  for (const int rollout : in_turn) route_of(rollout).round = round++;
  if (std::ssize(over_tcp) < input.shortest_chain) {
    for (const int rollout : over_tcp) route_of(rollout).round = round++;
    return;
  }
  const std::vector<int> chain = ChainOrder(over_tcp, [&](int one, int other) {
    return hosts.of_rollout[static_cast<size_t>(one)] ==
           hosts.of_rollout[static_cast<size_t>(other)];
  });
  int sender = -1;  // the trainer
  for (const int rollout : chain) {
    route_of(rollout).round = round;
    route_of(rollout).sender = std::exchange(sender, rollout);
  }
}

TrainerTraffic TrafficOf(const ModelSpec& spec, const v1::Config& config, int64_t device_bytes) {
  const Topology topology = TopologyOf(config);
  const int64_t hosts = topology.trainer_hosts;
  TrainerTraffic traffic;
  if (hosts <= 1) return traffic;
  const BatchLimits limits = TrainLimits(config);
  const int64_t sample =
      std::min(limits.sequence_tokens, limits.prompt_tokens + limits.response_tokens);
  // A micro-batch that has no room for another sample has at least so many.
  const int64_t samples =
      std::max<int64_t>(1, limits.micro_batch_tokens / std::max<int64_t>(1, sample));
  traffic.micro_batches = std::max<int64_t>(1, (limits.samples + samples - 1) / samples);

  const int64_t adapters = AdapterParameters(spec, config);
  const int64_t gradients = 4 * (adapters > 0 ? adapters : spec.parameters());
  const int64_t ranks = topology.trainers, on_host = topology.trainers_per_host();
  // Which way is taken: UsesChain (common/comm/group_hosts.h). On GPUs NCCL decides; its ring is
  // reckoned with.
  const bool chain = on_host * (hosts - 1) > hosts;
  const int64_t sent = config.trainer().device() == "cuda" ? gradients * (ranks - 1) / ranks
                       : chain                             ? gradients
                               : gradients * on_host * (hosts - 1) / hosts;
  // Those of adapters are summed over the micro-batches first (AdapterGradientSums).
  traffic.gradient_bytes = adapters > 0 ? sent : traffic.micro_batches * sent;

  const GroupSizes groups = WeightGroups(spec, ElementBytes(config));
  const std::string& reshard = config.actor().fsdp_config().reshard_after_forward();
  const GatherOptions gather{
      .ranks = ranks,
      .reshard = reshard == "true"    ? Reshard::kAlways
                 : reshard == "false" ? Reshard::kNever
                                      : Reshard::kAuto,
      .prefetch = config.actor().fsdp_config().forward_prefetch(),
      .kept_bytes = TrainerKeptBytes(
          device_bytes, topology.apart ? 0 : config.rollout().gpu_memory_utilization())};
  const bool kept = GatherSizesOf(groups, gather).layers == groups.layers;
  traffic.sync_gather_bytes = groups.total() * (hosts - 1) / hosts;
  // What is outside the layers stays from one update of the weights to the next.
  const int64_t passes = kept ? 1 : 2 * traffic.micro_batches;
  traffic.gather_bytes =
      (groups.global + passes * groups.layers * groups.layer) * (hosts - 1) / hosts;
  return traffic;
}

}  // namespace

const char* CarrierName(Carrier carrier) {
  switch (carrier) {
    case Carrier::kUnknown:
      return "";
    case Carrier::kIpc:
      return "ipc";
    case Carrier::kSharedMemory:
      return "shm";
    case Carrier::kTcp:
      return "tcp";
    case Carrier::kTcpTls:
      return "tcp-tls";
  }
  return "";
}

RouteInput MakeRouteInput(const ModelSpec& spec, const v1::Config& config) {
  const v1::Cluster& cluster = config.cluster();
  const int64_t elements =
      SendsAdaptersAlone(config) ? AdapterParameters(spec, config) : spec.parameters();
  return {.topology = TopologyOf(config),
          .transport = config.weight_sync().transport(),
          .shortest_chain = ShortestChain(config.weight_sync().fan_out()),
          .gpu = config.trainer().device() == "cuda",
          .tls = cluster.data_tls() && !cluster.tls().cert().empty(),
          .sync_bytes = elements * ElementBytes(config),
          .network_gbit_per_second = cluster.network_gbit_per_second()};
}

std::vector<PlannedRoute> PlanRoutes(const RouteInput& input,
                                     const WorkerHosts& hosts,
                                     double copied_bytes_per_second) {
  const Topology& topology = input.topology;
  std::vector<PlannedRoute> routes;
  SharedLinks links;
  const auto from = [&](const PlannedRoute& route) {
    return route.sender < 0 ? hosts.of_trainer[static_cast<size_t>(route.trainer)]
                            : hosts.of_rollout[static_cast<size_t>(route.sender)];
  };
  const auto to = [&](const PlannedRoute& route) {
    return hosts.of_rollout[static_cast<size_t>(route.rollout)];
  };
  for (int rollout = 0; rollout < topology.rollouts; ++rollout) {
    PlannedRoute route{
        .trainer = topology.PublisherOf(rollout), .rollout = rollout, .bytes = input.sync_bytes};
    const bool known = from(route) >= 0 && to(route) >= 0;
    route.between_hosts = known && from(route) != to(route);
    if (known) route.over = CarrierOf(input, route.between_hosts);
    routes.push_back(route);
  }
  for (int trainer = 0; trainer < topology.trainers; ++trainer) {
    DivideIntoRounds(input, hosts, trainer, &routes);
  }
  for (PlannedRoute& route : routes) {
    // In a chain the one before counts, not the trainer.
    if (route.sender >= 0) route.between_hosts = from(route) != to(route);
    if (route.between_hosts) links.Add(route.round, from(route), to(route));
  }
  for (PlannedRoute& route : routes) {
    const auto bytes = static_cast<double>(route.bytes);
    if (route.between_hosts && input.network_gbit_per_second > 0) {
      const int sharing = links.Sharing(route.round, from(route), to(route));
      route.seconds = bytes * sharing / (input.network_gbit_per_second * kBytesOfGbit);
    }
    if (route.over == Carrier::kSharedMemory && copied_bytes_per_second > 0) {
      route.seconds = bytes / copied_bytes_per_second;
    }
  }
  for (PlannedRoute& route : routes) {
    // Passed on within a host, the weights are there when they have come to it, or later.
    const PlannedRoute* into = &route;
    while (!into->between_hosts && into->sender >= 0) {
      into = &routes[static_cast<size_t>(into->sender)];
    }
    if (into != &route) route.seconds = into->seconds;
  }
  return routes;
}

double TransferPlan::SyncSeconds() const {
  std::vector<double> of_round(static_cast<size_t>(rounds));
  for (const PlannedRoute& route : routes) {
    if (route.seconds <= 0) return 0;
    double& slowest = of_round[static_cast<size_t>(route.round)];
    slowest = std::max(slowest, route.seconds);
  }
  if (trainers.sync_gather_bytes > 0 && network_gbit_per_second <= 0) return 0;
  double seconds = 0;
  for (const double slowest : of_round) {
    seconds += std::max(slowest, NetworkSeconds(trainers.sync_gather_bytes));
  }
  return seconds;
}

TransferPlan PlanTransfers(const ModelSpec& spec,
                           const v1::Config& config,
                           int64_t device_bytes,
                           double copied_bytes_per_second) {
  const RouteInput input = MakeRouteInput(spec, config);
  TransferPlan plan;
  plan.rollouts_elsewhere =
      input.topology.apart && input.transport != "tcp" && SyncMayUseTcp(config);
  plan.routes =
      PlanRoutes(input, HostsOf(input.topology, plan.rollouts_elsewhere), copied_bytes_per_second);
  plan.first_sync_bytes = input.sync_bytes;
  if (SendsAdaptersAlone(config)) plan.first_sync_bytes += spec.parameters() * ElementBytes(config);
  for (const PlannedRoute& route : plan.routes) {
    plan.rounds = std::max<int64_t>(plan.rounds, route.round + 1);
  }
  plan.trainers = TrafficOf(spec, config, device_bytes);
  plan.network_gbit_per_second = input.network_gbit_per_second;
  plan.copied_bytes_per_second = copied_bytes_per_second;
  return plan;
}

std::string TransferPlanToJson(const TransferPlan& plan) {
  nlohmann::json routes = nlohmann::json::array();
  for (const PlannedRoute& route : plan.routes) {
    routes.push_back({{"trainer", route.trainer},
                      {"rollout", route.rollout},
                      {"round", route.round},
                      {"over", CarrierName(route.over)},
                      {"between_hosts", route.between_hosts},
                      {"bytes", route.bytes}});
    if (route.seconds > 0) routes.back()["seconds"] = route.seconds;
  }
  nlohmann::json json = {{"routes", routes},
                         {"rollouts_elsewhere", plan.rollouts_elsewhere},
                         {"first_sync_bytes", plan.first_sync_bytes},
                         {"rounds", plan.rounds},
                         {"network_gbit_per_second", plan.network_gbit_per_second},
                         {"copied_bytes_per_second", plan.copied_bytes_per_second}};
  if (const double seconds = plan.SyncSeconds(); seconds > 0) json["sync_seconds"] = seconds;
  const TrainerTraffic& trainers = plan.trainers;
  json["trainers"] = {{"sync_gather_bytes", trainers.sync_gather_bytes},
                      {"micro_batches", trainers.micro_batches},
                      {"gradient_bytes", trainers.gradient_bytes},
                      {"gather_bytes", trainers.gather_bytes}};
  return json.dump();
}

}  // namespace tandem
