// What a user sees of a run, whoever tells it: its controller, or the files in its directory.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

namespace v1 {
class GetStatusResponse;
class ListSamplesRequest;
class ListSamplesResponse;
class ListStepsRequest;
class ListStepsResponse;
}  // namespace v1

// The reading calls of TandemService.
class RunView {
 public:
  virtual ~RunView() = default;

  virtual absl::StatusOr<v1::GetStatusResponse> GetStatus() = 0;
  virtual absl::StatusOr<v1::ListStepsResponse> ListSteps(const v1::ListStepsRequest& request) = 0;
  virtual absl::StatusOr<v1::ListSamplesResponse> ListSamples(
      const v1::ListSamplesRequest& request) = 0;
  // A line about the steps `first` to `last` for who lists them; "": there is nothing to say.
  virtual std::string NoteOnSteps(int64_t /*first*/, int64_t /*last*/) { return ""; }
};

}  // namespace tandem
