// The memory plan of a run: for which device, and what the user is told of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/config/config.h"
#include "common/model_spec/model_spec.h"
#include "controller/plan/memory_plan.h"
#include "controller/store/progress.h"
#include "controller/workers/worker_pool.h"
#include "controller/workers/worker_registry.h"

namespace tandem {

// Plans for a device of that size; the table goes to the log, peak and advice to the user.
// ResourceExhausted: the disk at `run_dir` has no room for what is offloaded.
absl::StatusOr<MemoryPlan> PlanRun(const ModelSpec& spec,
                                   const v1::Config& config,
                                   int64_t device_bytes,
                                   const std::string& run_dir,
                                   ProgressSink& progress);

// The memory of the smallest GPU of the run, once all workers are there: only who has a GPU knows.
// Errors as WorkerPool::WaitUntilComplete; FailedPrecondition: no worker has said it.
absl::StatusOr<int64_t> AwaitGpuBytes(WorkerPool& pool,
                                      const WorkerRegistry& registry,
                                      absl::Duration timeout,
                                      const std::function<bool()>& interrupted);

// Whether the files of offloaded memory have room on their disk.

// Bytes of the files of one pair.
int64_t OffloadedBytes(const MemoryPlan& plan);

// ResourceExhausted: the files of `pairs` pairs do not fit into `free_bytes` of `directory`; the
// message has both. A trainer makes some of its files as late as the end of its first step.
absl::Status CheckOffloadSpace(const MemoryPlan& plan,
                               int64_t pairs,
                               const std::string& directory,
                               int64_t free_bytes);

// What a process without privileges can still write there; what cannot be found out is no limit.
int64_t FreeDiskBytes(const std::string& directory);

}  // namespace tandem
