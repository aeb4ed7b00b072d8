// Numbers of workers and their devices: what follows, and what contradicts.
#include <catch2/catch.hpp>

#include "common/config/check.h"
#include "common/config/config.h"
#include "common/config/loaded_config.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;

std::vector<std::string> WithInputs(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(),
                   {"model.path=/m", "data.train_files=[/t.jsonl]", "cluster.run_dir=/r"});
  return overrides;
}

std::string PlacementProblem(const std::vector<std::string>& overrides) {
  auto loaded = LoadConfig("", WithInputs(overrides));
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return std::string(CheckConfigValues(*loaded).message());
}

v1::Config Valid(const std::vector<std::string>& overrides) {
  auto loaded = LoadConfig("", WithInputs(overrides));
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  const absl::Status checked = CheckConfigValues(*loaded);
  INFO(checked.ToString());
  REQUIRE(checked.ok());
  return loaded->config;
}

Topology TopologyWith(const std::vector<std::string>& overrides) {
  return TopologyOf(Valid(overrides));
}

TEST_CASE("colocated, there are as many rollouts as trainers, however their number is given") {
  const Topology two{.trainers = 2, .rollouts = 2};
  REQUIRE(TopologyWith({"cluster.trainers=2"}) == two);
  REQUIRE(TopologyWith({"cluster.trainers=2", "cluster.rollouts=2"}) == two);
  REQUIRE(TopologyWith({"trainer.n_gpus_per_node=2"}) == two);
  REQUIRE(TopologyWith({"trainer.nnodes=1", "trainer.n_gpus_per_node=2", "rollout.nnodes=1",
                        "rollout.n_gpus_per_node=2", "cluster.trainers=2"}) == two);
  REQUIRE(TopologyWith({}) == Topology{});
}

TEST_CASE(
    "unequal numbers of trainers and rollouts that share devices are refused by both numbers") {
  const std::string more_rollouts = PlacementProblem({"cluster.rollouts=3", "cluster.trainers=2"});
  REQUIRE(Has(more_rollouts, "cluster.trainers is 2 and cluster.rollouts is 3"));
  REQUIRE(Has(more_rollouts, "rollout rank 2 has no partner trainer rank 2"));
  REQUIRE(Has(more_rollouts, "or set cluster.hybrid_engine=false"));
  REQUIRE(Has(PlacementProblem({"trainer.n_gpus_per_node=2", "rollout.n_gpus_per_node=1"}),
              "trainer rank 1 has no partner rollout rank 1"));
}

TEST_CASE(
    "apart, numbers are free of each other, rollouts stay awake, and slots are shared memory") {
  const v1::Config config =
      Valid({"actor_rollout_ref.hybrid_engine=False", "trainer.n_gpus_per_node=2",
             "actor_rollout_ref.rollout.n_gpus_per_node=3", "trainer.device=cuda"});
  const Topology topology = TopologyOf(config);
  REQUIRE(topology == Topology{.trainers = 2, .rollouts = 3, .apart = true});
  REQUIRE(topology.devices() == 5);
  REQUIRE(config.rollout().free_cache_engine() == "false");
  REQUIRE(config.weight_sync().transport() == "shm");
  REQUIRE_FALSE(SyncIsDirect(
      Valid({"cluster.hybrid_engine=false", "cluster.trainers=1", "trainer.device=cuda"})));
  REQUIRE(TopologyWith({"cluster.hybrid_engine=false", "cluster.trainers=2"}) ==
          Topology{.trainers = 2, .rollouts = 1, .apart = true});
}

TEST_CASE("totals that contradict hosts and devices are refused by both numbers") {
  REQUIRE(Has(PlacementProblem({"trainer.n_gpus_per_node=4", "cluster.trainers=2",
                                "cluster.hybrid_engine=false"}),
              "cluster.trainers is 2, and trainer.nnodes * trainer.n_gpus_per_node is 1 * 4 = 4"));
  REQUIRE(Has(PlacementProblem({"rollout.n_gpus_per_node=3", "cluster.rollouts=1",
                                "cluster.hybrid_engine=false"}),
              "cluster.rollouts is 1, and rollout.nnodes * rollout.n_gpus_per_node is 1 * 3 = 3"));
}

TEST_CASE("several hosts have equally many workers each, and rollouts with their trainers") {
  const Topology pairs = TopologyWith({"trainer.nnodes=2", "trainer.n_gpus_per_node=3"});
  REQUIRE(pairs == Topology{.trainers = 6, .rollouts = 6, .trainer_hosts = 2, .rollout_hosts = 2});
  REQUIRE(pairs.devices_per_host() == 3);
  REQUIRE(TopologyWith({"trainer.nnodes=2", "rollout.nnodes=2", "cluster.trainers=2"}) ==
          Topology{.trainers = 2, .rollouts = 2, .trainer_hosts = 2, .rollout_hosts = 2});
  const Topology apart =
      TopologyWith({"cluster.hybrid_engine=false", "trainer.nnodes=2", "cluster.trainers=4",
                    "actor_rollout_ref.rollout.nnodes=1", "rollout.n_gpus_per_node=3"});
  REQUIRE(apart ==
          Topology{
              .trainers = 4, .rollouts = 3, .apart = true, .trainer_hosts = 2, .rollout_hosts = 1});
  REQUIRE(apart.devices_per_host() == 5);
}

TEST_CASE("hosts that contradict the workers are refused by both numbers") {
  REQUIRE(
      Has(PlacementProblem({"trainer.nnodes=2", "cluster.trainers=3"}),
          "cluster.trainers is 3 and trainer.nnodes is 2: each host has equally many trainers"));
  REQUIRE(Has(PlacementProblem({"cluster.hybrid_engine=false", "rollout.nnodes=2"}),
              "cluster.rollouts is 1 and rollout.nnodes is 2"));
  REQUIRE(
      Has(PlacementProblem({"trainer.nnodes=2", "trainer.n_gpus_per_node=2", "cluster.trainers=2"}),
          "cluster.trainers is 2, and trainer.nnodes * trainer.n_gpus_per_node is 2 * 2 = 4"));
  REQUIRE(Has(PlacementProblem({"trainer.nnodes=2", "rollout.nnodes=1", "cluster.trainers=2"}),
              "trainer.nnodes is 2 and rollout.nnodes is 1, and with cluster.hybrid_engine=true"));
}

TEST_CASE("a range of ports has room for the workers of a host") {
  const PortRange range =
      PortRangeOf(Valid({"cluster.port_range=20000-20001"}).cluster().port_range());
  REQUIRE(range.first == 20000);
  REQUIRE(range.last == 20001);
  REQUIRE(PortRangeOf("").last == 0);
  REQUIRE(Has(PlacementProblem({"cluster.port_range=20001-20000"}),
              "the first port has to be the lower one"));
  REQUIRE(Has(PlacementProblem({"cluster.port_range=60000-70000"}), "the last at most 65535"));
  REQUIRE(Has(PlacementProblem({"cluster.port_range=20000-20002", "cluster.trainers=2"}),
              "20000-20002, 3 ports, and a host may have 4 workers"));
  REQUIRE(
      PlacementProblem({"cluster.port_range=20000-20003", "cluster.trainers=4", "trainer.nnodes=2"})
          .empty());
}

TEST_CASE("a local folder is the run directory unless it is given") {
  REQUIRE(LocalDirOf(Valid({})) == "/r");
  REQUIRE(LocalDirOf(Valid({"cluster.local_dir=/scratch/r"})) == "/scratch/r");
}

TEST_CASE("apart, what needs a shared device is refused") {
  const std::string apart = "cluster.hybrid_engine=false";
  REQUIRE(Has(PlacementProblem({apart, "rollout.free_cache_engine=true"}),
              "rollout.free_cache_engine is true, and with cluster.hybrid_engine=false rollouts "
              "have devices of their own"));
  REQUIRE(Has(PlacementProblem({apart, "trainer.device=cuda", "weight_sync.transport=ipc"}),
              "weight_sync.transport=ipc hands over memory of one GPU"));
  REQUIRE(PlacementProblem({apart, "rollout.free_cache_engine=auto", "weight_sync.transport=shm"})
              .empty());
  REQUIRE(PlacementProblem({apart, "rollout.partial.overlap=true"}).empty());
}

TEST_CASE("apart, more rollouts than a step has groups are refused by both numbers") {
  const std::vector<std::string> three = {"cluster.hybrid_engine=false", "cluster.rollouts=3"};
  const auto with = [&](const std::string& key) {
    std::vector<std::string> overrides = three;
    overrides.push_back(key);
    return PlacementProblem(overrides);
  };
  REQUIRE(Has(with("data.train_batch_size=2"),
              "cluster.rollouts is 3, and a step generates 2 groups (data.train_batch_size), each "
              "on one rollout: 1 of them would always be idle; start at most 2"));
  REQUIRE(with("data.train_batch_size=3").empty());
  std::vector<std::string> checked = three;
  checked.insert(checked.end(), {"data.train_batch_size=2", "weight_sync.check_only=true"});
  REQUIRE(PlacementProblem(checked).empty());  // it generates nothing
}

TEST_CASE("workers of a role share the cores, and all workers where both roles work at once") {
  const std::vector<std::string> apart = {"cluster.hybrid_engine=false", "cluster.trainers=2",
                                          "cluster.rollouts=6"};
  const v1::Config taking_turns = Valid(apart);
  REQUIRE(ComputeThreadsOf(taking_turns, 2, 16) == 8);
  REQUIRE(ComputeThreadsOf(taking_turns, 6, 16) == 2);
  REQUIRE(ComputeThreadsOf(taking_turns, 6, 2) == 1);
  for (const char* at_once : {"rollout.partial.overlap=true", "trainer.off_policy_steps=1"}) {
    INFO(at_once);
    std::vector<std::string> overrides = apart;
    overrides.push_back(at_once);
    REQUIRE(ComputeThreadsOf(Valid(overrides), 2, 16) == 2);
    REQUIRE(ComputeThreadsOf(Valid(overrides), 6, 16) == 2);
  }
  REQUIRE(ComputeThreadsOf(Valid({"cluster.compute_threads=5"}), 1, 2) == 5);
  std::vector<std::string> two_hosts = apart;
  two_hosts.insert(two_hosts.end(),
                   {"trainer.nnodes=2", "rollout.nnodes=2", "rollout.partial.overlap=true"});
  REQUIRE(ComputeThreadsOf(Valid(two_hosts), 1, 16) == 4);  // one trainer and three rollouts
}

TEST_CASE("one step off needs devices for both roles, and whole samples") {
  const std::string one_step = "trainer.off_policy_steps=1", apart = "cluster.hybrid_engine=false";
  REQUIRE(PlacementProblem({one_step, apart}).empty());
  REQUIRE(Has(PlacementProblem({one_step}), "with cluster.hybrid_engine=true both take turns"));
  REQUIRE(Has(PlacementProblem({one_step, apart, "rollout.partial.overlap=true"}),
              "rollout.partial interrupts samples"));
  REQUIRE(Has(PlacementProblem({one_step, apart, "rollout.partial.max_tokens_per_round=8"}),
              "leave one of the two out"));
}

TEST_CASE("probe limits count the samples of all rollouts that a trainer scores") {
  const auto samples = [](const std::string& rollouts) {
    return ProbeLimits(Valid({"cluster.hybrid_engine=false", "cluster.trainers=2", rollouts}))
        .samples;
  };
  REQUIRE(samples("cluster.rollouts=2") == samples("cluster.rollouts=1"));
  REQUIRE(samples("cluster.rollouts=3") == 2 * samples("cluster.rollouts=2"));
}

}  // namespace
TEST_CASE("weights may go over TCP where trainers and rollouts may be on different hosts") {
  const auto may = [](std::vector<std::string> overrides) {
    return SyncMayUseTcp(LoadConfig("", WithInputs(std::move(overrides)))->config);
  };
  const std::string apart = "cluster.hybrid_engine=false";
  const std::string reached = "cluster.listen=0.0.0.0:4700";
  REQUIRE_FALSE(may({}));
  REQUIRE(may({"weight_sync.transport=tcp"}));
  REQUIRE_FALSE(may({apart}));
  REQUIRE_FALSE(may({apart, "cluster.listen=127.0.0.1:4700"}));
  // One host with all trainers, and another with all rollouts.
  REQUIRE(may({apart, reached}));
  REQUIRE_FALSE(may({reached}));  // each rollout is on the host of its trainer
  REQUIRE(may({apart, "cluster.trainers=4", "cluster.rollouts=2", "trainer.nnodes=2"}));
  REQUIRE_FALSE(SyncIsDirect(LoadConfig("", WithInputs({apart, reached}))->config));
}

}  // namespace tandem
