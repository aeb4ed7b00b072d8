// The memory plan of a run, and the messages about it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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

// Plans for a device of `device_bytes`. The table is logged; the peak and the advice go to
// `progress`. ResourceExhausted: the disk of `offload_dir` has no room for the offloaded memory.
absl::StatusOr<MemoryPlan> PlanRun(const ModelSpec& spec,
                                   const v1::Config& config,
                                   int64_t device_bytes,
                                   const std::string& offload_dir,
                                   ProgressSink& progress);

// Waits for all workers and returns the memory of the run's smallest GPU, which only they know.
// Errors as WorkerPool::WaitUntilComplete; FailedPrecondition: no worker has reported it.
absl::StatusOr<int64_t> AwaitGpuBytes(WorkerPool& pool,
                                      const WorkerRegistry& registry,
                                      absl::Duration timeout,
                                      const std::function<bool()>& interrupted);

// The size in bytes of the files that offloaded memory of one trainer needs.
int64_t OffloadedBytes(const MemoryPlan& plan);

// ResourceExhausted: the files of `trainers` trainers do not fit into the `free_bytes` of
// `directory` (nullopt: unknown); the message has both numbers. Checked in advance because a
// trainer creates some of its files only at the end of its first step.
absl::Status CheckOffloadSpace(const MemoryPlan& plan,
                               int64_t trainers,
                               const std::string& directory,
                               std::optional<int64_t> free_bytes);

}  // namespace tandem
