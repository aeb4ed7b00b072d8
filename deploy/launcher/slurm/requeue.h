// Whether a job that has ended begins anew.
#pragma once

#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// So often a job begins anew without a new checkpoint in between; then something is wrong that
// other nodes do not mend, or a step takes longer than the job may.
inline constexpr int kMostRequeuesInPlace = 3;

// Whether a launcher that ends with `code` is to begin anew: SIGUSR1, which Slurm sends before the
// time limit, has stopped it, it asks for a restart, or its workers stay away, as those of a lost
// node do long before Slurm finds that node down. Not where the run is finished, was refused or
// failed, or was stopped by a user.
bool WantsRequeue(int code);

// Counts one more requeue of `job` in `run_dir`/requeues, and returns how many of it there were
// since the run's newest checkpoint, which has the name `checkpoint` ("" without one). Errors by
// IoErrorCode.
absl::StatusOr<int> CountRequeue(const std::string& run_dir,
                                 const std::string& job,
                                 const std::string& checkpoint);

// The launch that the run directory belongs to goes on where a job was requeued: its id, which
// begins with the job's number; else `fresh`, so prefixed.
std::string LaunchIdOf(const std::string& run_dir,
                       const std::string& job,
                       int requeues,
                       const std::string& fresh);

}  // namespace tandem
