// The command lines with which a job asks Slurm for something.
#pragma once

#include <string>
#include <vector>

namespace tandem {

// A program that runs once, on one node of the job, with all that the job has there.
struct SlurmStep {
  std::string srun;  // path of the program
  std::string node;
  // A file that the node must see, as it is in a folder that all nodes share.
  std::string shared_file;
  std::vector<std::string> argv;  // of the program, which must be at the same path on all nodes
};

// argv of srun. It ends with the program's exit code, or with 0 where the node is lost. A node that
// does not see the file or the program says so and ends with 64. A SIGTERM to srun kills the
// program at once.
std::vector<std::string> StepCommand(const SlurmStep& step);

// argv of what begins the job anew: Slurm ends it, this process included, and starts it again on
// nodes that are up.
std::vector<std::string> RequeueCommand(const std::string& scontrol, const std::string& job);

}  // namespace tandem
