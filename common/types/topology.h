// Which workers a run has, and which of them share a device and a host.
#pragma once

#include <string>
#include <vector>

namespace tandem {

// Neighbouring ranks of one role.
struct RankRange {
  int first = 0;
  int count = 0;

  friend bool operator==(const RankRange&, const RankRange&) = default;
};

// What one host has to run, where agents start the workers of several.
struct HostShare {
  RankRange trainers;
  RankRange rollouts;
  int first_rollout_device = 0;  // apart, after those of the trainers

  // Numbers of devices on that host: trainers first, as in the whole run.
  int DeviceOfTrainer(int rank) const { return rank - trainers.first; }
  int DeviceOfRollout(int rank) const { return first_rollout_device + rank - rollouts.first; }

  friend bool operator==(const HostShare&, const HostShare&) = default;
};

// A value that follows from the configuration alone (TopologyOf). Ranks of trainers and of rollouts
// are counted apart, each from 0. Devices are numbered from 0, those of the trainers first.
struct Topology {
  int trainers = 1;
  int rollouts = 1;
  // Every worker has a device of its own. False: rollout r shares that of trainer r, and there are
  // as many rollouts as trainers.
  bool apart = false;
  // Hosts that have trainers, and hosts that have rollouts; apart, a host may have both. Each has
  // equally many of a role, with neighbouring ranks, the first host the first ones.
  int trainer_hosts = 1;
  int rollout_hosts = 1;

  bool several_hosts() const { return trainer_hosts > 1 || rollout_hosts > 1; }
  int trainers_per_host() const { return (trainers + trainer_hosts - 1) / trainer_hosts; }
  int rollouts_per_host() const { return (rollouts + rollout_hosts - 1) / rollout_hosts; }
  // The most that one host can have: apart, where both roles are on it.
  int devices_per_host() const {
    return apart ? trainers_per_host() + rollouts_per_host() : trainers_per_host();
  }

  int devices() const { return apart ? trainers + rollouts : trainers; }
  int DeviceOfTrainer(int rank) const { return rank; }
  int DeviceOfRollout(int rank) const { return apart ? trainers + rank : rank; }

  // The numbers of hosts that the workers can be spread over, the fewest first. Colocated one:
  // trainer_hosts; apart two, as both roles may be side by side (the larger number of hosts), or on
  // hosts of their own (the sum).
  std::vector<int> HostCounts() const;
  bool FitsHosts(int hosts) const;
  // "2", or "2 (both roles side by side) or 3 (the trainers' hosts, then the rollouts')"
  std::string FittingHosts() const;
  // What host `host`, from 0, of `hosts` runs. Side by side the first hosts have the first ranks of
  // both roles; otherwise the trainers' hosts come first. `hosts` must fit.
  HostShare ShareOf(int host, int hosts) const;

  // The trainer that sends its weights to the rollout, and scores its part of the probe.
  int PublisherOf(int rollout) const { return rollout % trainers; }
  // How many rollouts the trainer with most of them sends weights to.
  int MostRolloutsOfATrainer() const { return (rollouts + trainers - 1) / trainers; }

  // "2 trainers and 2 rollouts that share 2 devices", "2 trainers and 3 rollouts on 5 devices", and
  // of several hosts ", trainers on 2 hosts, rollouts on 1"
  std::string Text() const;
  // A line for each host, where several have workers: "host 1: trainer 0, rollout 0" or, apart,
  // where a host may be in both lists, "host 1 with trainers: trainers 0 to 1". Empty for one host.
  std::vector<std::string> HostLines() const;

  friend bool operator==(const Topology&, const Topology&) = default;
};

// Of one worker.
struct ThreadsByRole {
  int trainer = 1;
  int rollout = 1;
};

}  // namespace tandem
