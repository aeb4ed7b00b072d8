// How many bytes of weights and gradients cross from worker to worker, over what, and how long that
// takes at least, as far as the configuration and a measurement say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/model_spec/model_spec.h"
#include "common/types/topology.h"

namespace tandem {

// What lies between a trainer and a rollout.
enum class Carrier { kUnknown, kIpc, kSharedMemory, kTcp, kTcpTls };
// "ipc", "shm", "tcp" (in clear text), "tcp-tls"; "" of an unknown one.
const char* CarrierName(Carrier carrier);

// What decides the routes of weights, but for the hosts of the workers.
struct RouteInput {
  Topology topology;
  std::string transport = "auto";  // weight_sync.transport
  int shortest_chain = 3;          // of a trainer's rollouts over TCP; 0: all are sent to in turn
  bool gpu = false;
  bool tls = false;                    // connections between workers are encrypted
  int64_t sync_bytes = 0;              // of one sync of one rollout
  double network_gbit_per_second = 0;  // of one host, in each direction; 0: not known
};
RouteInput MakeRouteInput(const ModelSpec& spec, const v1::Config& config);

// Numbers of the workers' hosts, by rank. Equal ones are one host; -1: not known.
struct WorkerHosts {
  std::vector<int> of_trainer;
  std::vector<int> of_rollout;
};

struct PlannedRoute {
  int trainer = 0;
  int rollout = 0;
  int round = 0;  // of a sync, in which each trainer sends to one rollout or along one chain
  int sender =
      -1;  // in a chain, the rollout that passes the weights on; -1: the trainer sends them
  Carrier over = Carrier::kUnknown;
  bool between_hosts = false;
  int64_t bytes = 0;
  double seconds = 0;  // at least; 0: not known
};

// By the rollout's rank. `hosts` has every worker of the topology. Seconds of a route between hosts
// are what the network takes, which routes share that leave or reach one host in the same round.
// `copied_bytes_per_second` gives those of shared memory; 0: not known.
std::vector<PlannedRoute> PlanRoutes(const RouteInput& input,
                                     const WorkerHosts& hosts,
                                     double copied_bytes_per_second = 0);

// What a host of trainers sends to the others, and receives from them, at most. All 0 with one
// host.
struct TrainerTraffic {
  int64_t sync_gather_bytes = 0;  // weights, in each round of a sync
  // Gradients and gathered weights of an optimizer step that has as many micro-batches as it may
  // have: that of a mini-batch whose prompts and responses have their greatest lengths.
  int64_t micro_batches = 1;
  int64_t gradient_bytes = 0;
  int64_t gather_bytes = 0;
};

struct TransferPlan {
  std::vector<PlannedRoute> routes;
  // Planned for hosts of their own, though rollouts may also be side by side with trainers.
  bool rollouts_elsewhere = false;
  int64_t first_sync_bytes = 0;  // of one rollout; more than others where adapters are separate
  int64_t rounds = 1;            // of a sync: calls to the trainer that has most of them
  TrainerTraffic trainers;
  double network_gbit_per_second = 0;  // 0: not known
  double copied_bytes_per_second = 0;  // by which shared memory is reckoned; 0: not measured

  double NetworkSeconds(int64_t bytes) const {
    return network_gbit_per_second > 0 ? static_cast<double>(bytes) * 8e-9 / network_gbit_per_second
                                       : 0;
  }
  // Of a whole sync, at least; 0: not known.
  double SyncSeconds() const;
};

// `device_bytes`: of one trainer's device; it decides with actor.fsdp_config.reshard_after_forward
// whether trainers keep what they gather. 0: not known, and they keep nothing unless the key says
// so.
TransferPlan PlanTransfers(const ModelSpec& spec,
                           const v1::Config& config,
                           int64_t device_bytes,
                           double copied_bytes_per_second = 0);

// One line of JSON: routes (trainer, rollout, over, bytes, seconds where they are known), rounds,
// first_sync_bytes, sync_seconds, trainers, and what the seconds rest on.
std::string TransferPlanToJson(const TransferPlan& plan);

}  // namespace tandem
