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

}  // namespace tandem
