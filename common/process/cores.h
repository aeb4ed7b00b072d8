// The cores that this process may use, and the pinning of a worker's compute threads to them.
#pragma once

#include <string>
#include <vector>

namespace tandem {

// CPU numbers, ascending, as sched_getaffinity gives them for the process's first thread: cgroups,
// taskset and Slurm limit them. Never empty.
std::vector<int> AllowedCores();

// Returns the cores of the worker of `rank` among the `workers` of its role, with `threads` compute
// threads each: neighbours in `allowed`, disjoint between ranks. Empty if `allowed` has fewer than
// workers x threads. Trainers and rollouts share cores, because they take turns.
std::vector<int> SelectCores(const std::vector<int>& allowed, int rank, int workers, int threads);

// SelectCores for this process if its environment says TANDEM_PIN_THREADS=1, else empty
// (docs/adr/0010).
std::vector<int> ComputeCores(int rank, int workers, int threads);

// "pinned to cores 2, 3" or "not pinned", for the log.
std::string PinningText(const std::vector<int>& cores);

// Pins the calling thread, and threads that it starts, to one core; best effort.
void PinThisThread(int core);
// Lets the calling thread run on all AllowedCores again; best effort. Without effect on the
// process's first thread.
void UnpinThisThread();

}  // namespace tandem
