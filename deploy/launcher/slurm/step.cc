#include "deploy/launcher/slurm/step.h"

namespace tandem {
namespace {

// Runs on the node. A file system over the network may show a new file a little late.
constexpr char kLookAndRun[] = R"(file="$1" program="$2" tries=0
until [ -e "$file" ]; do
  tries=$((tries + 1))
  if [ "$tries" -ge 15 ]; then
    echo "$SLURMD_NODENAME does not see $file, which the launcher has written: set cluster.run_dir to a folder on a file system that all nodes share" >&2
    exit 64
  fi
  sleep 1
done
if [ ! -x "$program" ]; then
  echo "$SLURMD_NODENAME has no program $program: install Tandem at the same path on all nodes, or on a file system that they share" >&2
  exit 64
fi
shift
exec "$@")";

}  // namespace

std::vector<std::string> StepCommand(const SlurmStep& step) {
  std::vector<std::string> argv = {
      step.srun, "--nodes=1", "--ntasks=1", "--nodelist=" + step.node,
      // Not its own resources alone: all of the job's on that node, which other steps may use too.
      "--overlap", "--whole", "--mem=0", "--cpu-bind=none",
      // One task, which no other step's end concerns.
      "--kill-on-bad-exit=0", "--wait=0", "--mpi=none", "--export=ALL", "--input=none",
      "--job-name=tandem-" + step.node, "/bin/sh", "-c", kLookAndRun, "sh", step.shared_file};
  argv.insert(argv.end(), step.argv.begin(), step.argv.end());
  return argv;
}

std::vector<std::string> RequeueCommand(const std::string& scontrol, const std::string& job) {
  return {scontrol, "requeue", job};
}

}  // namespace tandem
