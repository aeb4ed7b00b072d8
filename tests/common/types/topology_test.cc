#include "common/types/topology.h"

#include <set>

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("colocated, trainer and rollout of a rank have one device, and one sends to the other",
          "[topology]") {
  const Topology topology{.trainers = 3, .rollouts = 3};
  REQUIRE(topology.devices() == 3);
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(topology.DeviceOfTrainer(rank) == topology.DeviceOfRollout(rank));
    REQUIRE(topology.PublisherOf(rank) == rank);
  }
  REQUIRE(topology.MostRolloutsOfATrainer() == 1);
  REQUIRE(topology.Text() == "3 trainers and 3 rollouts that share in pairs 3 devices");
  REQUIRE(Topology{}.Text() == "1 trainer and 1 rollout that share 1 device");
}

TEST_CASE("apart, every worker has a device of its own, and rollouts are dealt out to trainers",
          "[topology]") {
  const Topology topology{.trainers = 2, .rollouts = 5, .apart = true};
  std::set<int> devices;
  for (int rank = 0; rank < 2; ++rank) devices.insert(topology.DeviceOfTrainer(rank));
  for (int rank = 0; rank < 5; ++rank) devices.insert(topology.DeviceOfRollout(rank));
  REQUIRE(devices.size() == 7);
  REQUIRE(*devices.rbegin() == topology.devices() - 1);
  REQUIRE(topology.PublisherOf(4) == 0);
  REQUIRE(topology.PublisherOf(3) == 1);
  REQUIRE(topology.MostRolloutsOfATrainer() == 3);
  REQUIRE(topology.Text() == "2 trainers and 5 rollouts on 7 devices");
}

TEST_CASE("A topology says who is on which of several hosts") {
  REQUIRE(Topology{.trainers = 2, .rollouts = 2}.HostLines().empty());
  const Topology pairs{.trainers = 4, .rollouts = 4, .trainer_hosts = 2, .rollout_hosts = 2};
  REQUIRE(pairs.Text() == "4 trainers and 4 rollouts that share in pairs 4 devices, on 2 hosts");
  REQUIRE(pairs.HostLines() ==
          std::vector<std::string>{"host 1: trainers 0 to 1, rollouts 0 to 1",
                                   "host 2: trainers 2 to 3, rollouts 2 to 3"});
  const Topology apart{.trainers = 2, .rollouts = 3, .apart = true, .trainer_hosts = 2};
  REQUIRE(apart.Text() ==
          "2 trainers and 3 rollouts on 5 devices, trainers on 2 hosts, rollouts on 1 host");
  REQUIRE(apart.HostLines() == std::vector<std::string>{"host 1 with trainers: trainer 0",
                                                        "host 2 with trainers: trainer 1",
                                                        "host 1 with rollouts: rollouts 0 to 2"});
}

TEST_CASE("A topology shares its workers out to the hosts of agents, with devices of each host") {
  const Topology pairs{.trainers = 4, .rollouts = 4, .trainer_hosts = 2, .rollout_hosts = 2};
  REQUIRE(pairs.HostCounts() == std::vector<int>{2});
  REQUIRE(pairs.FitsHosts(2));
  REQUIRE_FALSE(pairs.FitsHosts(4));
  REQUIRE(pairs.FittingHosts() == "2");
  const HostShare second = pairs.ShareOf(1, 2);
  REQUIRE(second == HostShare{.trainers = {2, 2}, .rollouts = {2, 2}});
  REQUIRE(second.DeviceOfTrainer(3) == 1);
  REQUIRE(second.DeviceOfRollout(3) == 1);
  REQUIRE(Topology{}.ShareOf(0, 1) == HostShare{.trainers = {0, 1}, .rollouts = {0, 1}});
}

TEST_CASE("Apart, hosts have one role each or both side by side, as their number says") {
  const Topology apart{
      .trainers = 4, .rollouts = 3, .apart = true, .trainer_hosts = 2, .rollout_hosts = 3};
  REQUIRE(apart.FitsHosts(5));
  REQUIRE(apart.FitsHosts(3));
  REQUIRE_FALSE(apart.FitsHosts(2));
  REQUIRE(apart.FittingHosts() ==
          "3 (both roles side by side) or 5 (the trainers' hosts, then the rollouts')");
  REQUIRE(apart.ShareOf(1, 5) ==
          HostShare{.trainers = {2, 2}, .rollouts = {}, .first_rollout_device = 2});
  REQUIRE(apart.ShareOf(2, 5) == HostShare{.trainers = {}, .rollouts = {0, 1}});
  REQUIRE(apart.ShareOf(4, 5) == HostShare{.trainers = {}, .rollouts = {2, 1}});
  const HostShare first = apart.ShareOf(0, 3);
  REQUIRE(first == HostShare{.trainers = {0, 2}, .rollouts = {0, 1}, .first_rollout_device = 2});
  REQUIRE(first.DeviceOfTrainer(1) == 1);
  REQUIRE(first.DeviceOfRollout(0) == 2);
  REQUIRE(apart.ShareOf(2, 3) == HostShare{.trainers = {}, .rollouts = {2, 1}});
  const HostShare last = apart.ShareOf(4, 5);
  REQUIRE(last.DeviceOfRollout(2) == 0);
}

}  // namespace tandem
