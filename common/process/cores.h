// The cores that this process may use, and the pinning of a pair's compute threads to them.
#pragma once

#include <string>
#include <vector>

namespace tandem {

// CPU numbers, ascending, as sched_getaffinity gives them for the process's first thread: cgroups,
// taskset and Slurm limit them. Never empty.
std::vector<int> AllowedCores();

// Returns the cores of pair `pair` of `pairs` with `threads` compute threads each: neighbours in
// `allowed`, disjoint between pairs. Empty if `allowed` has fewer than pairs x threads. Trainer and
// rollout of a pair share their cores, because they take turns.
std::vector<int> SelectPairCores(const std::vector<int>& allowed, int pair, int pairs, int threads);

// SelectPairCores for this process if its environment says TANDEM_PIN_THREADS=1, else empty
// (docs/adr/0010).
std::vector<int> ComputeCores(int pair, int pairs, int threads);

// "pinned to cores 2, 3" or "not pinned", for the log.
std::string PinningText(const std::vector<int>& cores);

// Pins the calling thread, and threads that it starts, to one core; best effort.
void PinThisThread(int core);
// Lets the calling thread run on all AllowedCores again; best effort. Without effect on the
// process's first thread.
void UnpinThisThread();

}  // namespace tandem
