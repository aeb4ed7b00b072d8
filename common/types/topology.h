// Which workers a run has, and which of them share a device.
#pragma once

#include <string>

namespace tandem {

// A value that follows from the configuration alone (TopologyOf). Ranks of trainers and of rollouts
// are counted apart, each from 0. Devices are numbered from 0, those of the trainers first.
struct Topology {
  int trainers = 1;
  int rollouts = 1;
  // Every worker has a device of its own. False: rollout r shares that of trainer r, and there are
  // as many rollouts as trainers.
  bool apart = false;

  int devices() const { return apart ? trainers + rollouts : trainers; }
  int DeviceOfTrainer(int rank) const { return rank; }
  int DeviceOfRollout(int rank) const { return apart ? trainers + rank : rank; }

  // The trainer that sends its weights to the rollout, and scores its part of the probe.
  int PublisherOf(int rollout) const { return rollout % trainers; }
  // How many rollouts the trainer with most of them sends weights to.
  int MostRolloutsOfATrainer() const { return (rollouts + trainers - 1) / trainers; }

  // "2 trainers and 2 rollouts that share 2 devices", "2 trainers and 3 rollouts on 5 devices"
  std::string Text() const;

  friend bool operator==(const Topology&, const Topology&) = default;
};

// Of one worker.
struct ThreadsByRole {
  int trainer = 1;
  int rollout = 1;
};

}  // namespace tandem
