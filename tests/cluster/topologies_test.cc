// What a run ends with does not depend on the nodes of its job: the same bits as on one host.
#include <filesystem>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/cluster/slurm_cluster.h"
#include "tests/e2e/placed_run.h"
#include "tests/support/patience.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

// Every socket file of the run is on a disk of the worker's node, so that none can be reached from
// another; the run directory is shared.
std::string LocalDir(const ClusterRig& rig) {
  return SlurmCluster::Shared().local_disk() + "/" + rig.dir().filename().string();
}

PlacedRun RunAsJob(ClusterRig& rig, int nodes) {
  SlurmCluster& cluster = SlurmCluster::Shared();
  rig.Set("cluster.local_dir", LocalDir(rig));
  const std::string job = cluster.Submit(rig, nodes);
  WaitUntil("a first checkpoint", [&] { return rig.HasRunFile("checkpoints/latest"); });
  std::error_code gone;
  for (auto file = std::filesystem::recursive_directory_iterator(rig.run_dir(), gone);
       file != std::filesystem::recursive_directory_iterator(); file.increment(gone)) {
    INFO(file->path());
    REQUIRE_FALSE(file->is_socket(gone));
  }
  const JobState ended = cluster.WaitForEnd(job);
  INFO(rig.Log("launcher") << rig.Log("controller") << rig.Log("trainer"));
  REQUIRE(ended.name == "COMPLETED");
  PlacedRun run = ReadPlacedRun(rig);
  const std::string controller = rig.Log("controller");
  for (int node = 1; node <= nodes; ++node) {
    REQUIRE(Has(controller, fmt::format("on node{} (boot ", node)));
  }
  // Where workers say that they listen and where others reach them.
  for (const char* worker : {"trainer", "rollout"}) {
    REQUIRE_FALSE(Has(rig.Log(worker), "unix:" + rig.run_dir()));
  }
  REQUIRE_FALSE(Has(controller, "unix:" + rig.run_dir()));
  return run;
}

TEST_CASE("two nodes with a trainer and a rollout each end with the bits of one host") {
  ClusterRig rig(Tiny({{"rollout.free_cache_engine", "true"}}));
  rig.SetPairs(2);
  rig.Set("trainer.nnodes", "2");
  RequireSame(RunAsJob(rig, 2), OnOneHost());
}

TEST_CASE("trainers on one node and rollouts on another end with the bits of one host") {
  ClusterRig rig(Tiny());
  rig.SetApart(2, 1);
  RequireSame(RunAsJob(rig, 2), OnOneHost());
  REQUIRE(Has(rig.Log("trainer"), "buckets, over TCP"));
}

TEST_CASE("two nodes with a trainer each and one with a rollout end with the bits of one host") {
  ClusterRig rig(Tiny());
  rig.SetApart(2, 1);
  rig.Set("trainer.nnodes", "2");
  RequireSame(RunAsJob(rig, 3), OnOneHost());
  REQUIRE(Has(rig.Log("trainer"), "buckets, over TCP"));
}

}  // namespace
}  // namespace tandem::testing
