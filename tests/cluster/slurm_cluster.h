// A real Slurm on this machine (deploy/slurm/local_cluster.sh), and runs as its jobs.
#pragma once

#include <string>
#include <vector>

#include "tests/support/cluster_rig.h"
#include "tests/support/temp_dir.h"

namespace tandem::testing {

// Of a job, as Slurm has it.
struct JobState {
  std::string name;  // "RUNNING", "COMPLETED"
  int code = 0;      // of the batch script
  int restarts = 0;
  std::string nodes;  // "node[1-2]"; not yet given: "(null)"

  bool ended() const;
};

// Three nodes: node1 to node3.
class SlurmCluster {
 public:
  // The one of this test program, which ends with it. Ends the program with 77 and the reason where
  // it cannot be: without root, Slurm or the kernel's namespaces.
  static SlurmCluster& Shared();

  // As from the head: "sbatch", "scancel"; throws std::runtime_error unless it ends with 0. Returns
  // what it printed.
  std::string Run(const std::vector<std::string>& command);
  // A verb of the script for a node: Do("crash", "node2").
  void Do(const std::string& verb, const std::string& node);
  // Each node's own disk.
  std::string local_disk() const { return dir_ + "/local"; }

  // Submits deploy/slurm/tandem.sbatch for a rig. Returns the job's number.
  std::string Submit(const ClusterRig& rig,
                     int nodes,
                     const std::vector<std::string>& launcher_flags = {},
                     const std::vector<std::string>& sbatch_flags = {});
  JobState StateOf(const std::string& job);
  JobState WaitForEnd(const std::string& job);
  // Until a node can take jobs again.
  void WaitForNode(const std::string& node);

  ~SlurmCluster();
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

 private:
  SlurmCluster();
  // Returns the exit code.
  int Script(const std::vector<std::string>& arguments,
             const std::map<std::string, std::string>& env,
             std::string* output);

  TempDir own_;
  std::string dir_;
  int calls_ = 0;
};

}  // namespace tandem::testing
