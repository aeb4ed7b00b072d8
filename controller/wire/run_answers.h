// What the users' API answers from the records of a run: the same in a controller and in a tool
// that reads the run's files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "controller/store/run_store.h"

namespace tandem {

namespace v1 {
class GetStatusResponse;
class ListSamplesRequest;
class ListSamplesResponse;
class ListStepsRequest;
class ListStepsResponse;
}  // namespace v1

// Each answer stays below a client's limit of 4 MiB, as the comments of the calls say. Errors as
// RunRecords.
absl::StatusOr<v1::ListStepsResponse> AnswerSteps(RunRecords& records,
                                                  const v1::ListStepsRequest& request);
absl::StatusOr<v1::ListSamplesResponse> AnswerSamples(RunRecords& records,
                                                      const v1::ListSamplesRequest& request);

void AddEventsToStatus(const std::vector<EventRecord>& events, v1::GetStatusResponse& status);

// Sets last_lost_step, of a run that has made `made_steps` steps, and the newest events. Nothing
// that cannot be read: the status is of use without it.
void AddRecordsToStatus(RunRecords& records, int64_t made_steps, v1::GetStatusResponse& status);

// "2026-01-02T03:04:05.000006Z"; "" for 0.
std::string StampText(int64_t micros);

}  // namespace tandem
