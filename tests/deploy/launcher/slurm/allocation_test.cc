#include "deploy/launcher/slurm/allocation.h"

#include <map>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;
using testing::Message;

using Environment = std::map<std::string, std::string>;

absl::StatusOr<Allocation> Read(const Environment& environment) {
  return ReadAllocation(
      [&](const std::string& name) {
        const auto found = environment.find(name);
        return found == environment.end() ? std::string() : found->second;
      },
      [](const std::string& list) -> absl::StatusOr<std::string> {
        if (list == "bad[") return Internal("scontrol ended with exit code 1");
        if (list == "none") return std::string("\n");
        REQUIRE(list == "a[1-2]");
        return std::string("a1\na2\n");
      });
}

TEST_CASE("an allocation is a job's number, its nodes in order, and its requeues") {
  const auto first = Read({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "a[1-2]"}});
  REQUIRE(first.ok());
  REQUIRE(first->job == "7");
  REQUIRE(first->nodes == std::vector<std::string>{"a1", "a2"});
  REQUIRE(first->requeues == 0);
  const auto again =
      Read({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "a[1-2]"}, {"SLURM_RESTART_COUNT", "2"}});
  REQUIRE(again->requeues == 2);
}

TEST_CASE("outside of a job, in one of several components and without names there is none") {
  REQUIRE(Has(Message(Read({}).status()), "this is no job of Slurm's"));
  REQUIRE(Has(Message(Read({}).status()), "deploy/slurm/tandem.sbatch"));
  // As in a shell that has inherited a part of a job's environment.
  REQUIRE_FALSE(Read({{"SLURM_JOB_ID", "7"}}).ok());
  const auto parts =
      Read({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "a[1-2]"}, {"SLURM_HET_SIZE", "2"}});
  REQUIRE(Has(Message(parts.status()), "heterogeneous job of 2 components"));
  const auto failed = Read({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "bad["}});
  REQUIRE(Message(failed.status()) ==
          "--slurm: the names of the nodes bad[: scontrol ended with exit code 1");
  const auto none = Read({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "none"}});
  REQUIRE(Has(Message(none.status()), "names no node"));
}

Allocation OfNodes(int count) {
  Allocation allocation{.job = "7"};
  for (int node = 1; node <= count; ++node) {
    allocation.nodes.push_back("n" + std::to_string(node));
  }
  return allocation;
}

TEST_CASE("colocated, a job needs as many nodes as the configuration has hosts") {
  const Topology two{.trainers = 4, .rollouts = 4, .trainer_hosts = 2, .rollout_hosts = 2};
  REQUIRE(CheckNodes(two, 0, OfNodes(2)).ok());
  REQUIRE(CheckNodes(Topology{}, 0, OfNodes(1)).ok());
  const std::string refused = Message(CheckNodes(two, 0, OfNodes(3)));
  INFO(refused);
  REQUIRE(Has(refused, "the job has 3 node(s) (n1 n2 n3), and the configuration has 2 host(s)"));
  REQUIRE(Has(refused, "--nodes=2, or set trainer.nnodes=3"));
}

TEST_CASE("apart, both roles may be side by side or on nodes of their own") {
  const Topology apart{
      .trainers = 4, .rollouts = 3, .apart = true, .trainer_hosts = 2, .rollout_hosts = 3};
  for (const int nodes : {3, 5}) REQUIRE(CheckNodes(apart, 0, OfNodes(nodes)).ok());
  for (const int nodes : {1, 2, 4, 6}) REQUIRE_FALSE(CheckNodes(apart, 0, OfNodes(nodes)).ok());
  const std::string refused = Message(CheckNodes(apart, 0, OfNodes(4)));
  INFO(refused);
  REQUIRE(Has(refused, "the job has 4 node(s)"));
  REQUIRE(Has(refused, "for 3 with trainers and rollouts side by side, or for 5"));
  REQUIRE(Has(refused, "--nodes=3 or --nodes=5"));
}

TEST_CASE("spare hosts are nodes beyond those of the configuration's") {
  const Topology two{.trainers = 2, .rollouts = 2, .trainer_hosts = 2, .rollout_hosts = 2};
  REQUIRE(CheckNodes(two, 1, OfNodes(3)).ok());
  const std::string refused = Message(CheckNodes(two, 1, OfNodes(2)));
  INFO(refused);
  REQUIRE(Has(refused, "is for 3, of which 1 are spare (cluster.spare_hosts;"));
}

}  // namespace
}  // namespace tandem
