// Goes through all records of a run in constant memory: reads them in pages.
#pragma once

#include <cstdint>
#include <functional>

#include <absl/status/status.h>

#include "controller/store/run_store.h"

namespace tandem {

// Of steps or evaluations; the memory of a walk is that of one page.
inline constexpr int64_t kRecordsOfPage = 256;

// Calls `visit` with the valid steps, or with `undone` with the undone ones, in ascending order and
// without the ledgers of their phases. The run may go on meanwhile: steps that are recorded later
// may be missed. Errors as RunRecords.
absl::Status ForEachStep(RunRecords& records,
                         bool undone,
                         const std::function<void(const StepRecord&)>& visit);

// The same with evaluations from query.first_step on.
absl::Status ForEachEvaluation(RunRecords& records,
                               EvaluationQuery query,
                               const std::function<void(const EvaluationRecord&)>& visit);

}  // namespace tandem
