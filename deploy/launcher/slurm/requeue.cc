#include "deploy/launcher/slurm/requeue.h"

#include <csignal>
#include <fstream>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/process/exit_code.h"
#include "common/process/files/private_files.h"

namespace tandem {

bool WantsRequeue(int code) {
  return code == 128 + SIGUSR1 || code == kExitRestart || code == kExitPeerLost;
}

absl::StatusOr<int> CountRequeue(const std::string& run_dir,
                                 const std::string& job,
                                 const std::string& checkpoint) {
  const std::string path = run_dir + "/requeues";
  int count = 0;
  std::string of_job, since;
  std::ifstream file(path);
  if (file >> count >> of_job) {
    file >> since;  // stays empty where there was no checkpoint
    if (of_job != job || since != checkpoint) count = 0;
  } else {
    count = 0;
  }
  ++count;
  TANDEM_RETURN_IF_ERROR(WritePrivateFile(path, fmt::format("{} {} {}\n", count, job, checkpoint)));
  return count;
}

std::string LaunchIdOf(const std::string& run_dir,
                       const std::string& job,
                       int requeues,
                       const std::string& fresh) {
  const std::string prefix = fmt::format("slurm-{}-", job);
  std::string owner;
  if (requeues > 0) std::ifstream(run_dir + "/launch") >> owner;
  return owner.starts_with(prefix) ? owner : prefix + fresh;
}

}  // namespace tandem
