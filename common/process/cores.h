// Which cores this process may use, and which of them a pair's compute threads stay on.
#pragma once

#include <string>
#include <vector>

namespace tandem {

// CPU numbers, ascending, as sched_getaffinity gives them for the process's first thread: cgroups,
// taskset and Slurm count. Never empty.
std::vector<int> AllowedCores();

// The cores of pair `pair` of `pairs` with `threads` compute threads each: neighbours in `allowed`,
// no core twice. Empty where pairs x threads are more than `allowed`. Trainer and rollout of a pair
// get the same, for they take turns.
std::vector<int> CoresOfPair(const std::vector<int>& allowed, int pair, int pairs, int threads);

// CoresOfPair for this process if its environment says TANDEM_PIN_THREADS=1, else empty
// (docs/adr/0010).
std::vector<int> ComputeCores(int pair, int pairs, int threads);

// "pinned to cores 2, 3" or "not pinned", for the log.
std::string PinningText(const std::vector<int>& cores);

// Keeps the calling thread, and threads that it starts, on one core; best effort.
void PinThisThread(int core);
// Lets the calling thread run on all AllowedCores again; best effort. Without effect for the
// process's first thread.
void UnpinThisThread();

}  // namespace tandem
