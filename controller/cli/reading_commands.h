// The commands that show a run: status, steps, samples, memory.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "controller/cli/memory_command.h"
#include "controller/view/run_view.h"

namespace tandem {

struct StepsOptions {
  int64_t first_step = 1;
  int64_t last_step = 0;             // 0: to the newest
  int64_t newest = 0;                // at most so many, the newest of those; 0: all
  bool undone = false;               // those that recoveries have undone
  int64_t step = 0;                  // not 0: of this one alone all that is recorded
  std::vector<std::string> metrics;  // a column for each; empty: the usual table
  std::string run_words;             // that name the run, for commands to type (CommandWords)
};

// An option and its value as a shell reads them, with a space before each, for commands that the
// user can type: " --run-dir 'my run'". `option` may be empty; "" for an empty value.
std::string CommandWords(const std::string& option, const std::string& value);

struct SamplesOptions {
  // 0 or none: the newest finished step, or with a prompt all. With `evaluation`: 0 is the
  // validation before training, none the newest.
  std::optional<int64_t> step;
  int64_t limit = 20;
  int64_t offset = 0;
  int64_t undone_by = 0;  // not 0: samples that this generation has undone
  int64_t prompt_id = 0;  // not 0: of this prompt alone
  bool evicted = false;   // those that dynamic sampling dropped
  bool evaluation = false;
  std::string where, contains, sort;  // as v1::ListSamplesRequest
  size_t width = 60;                  // characters of a text; 0: all
};

// Each prints its result to `out`, as a table or as one line of JSON, the same whoever the view
// asks. Errors as the view's.
class ReadingCommands {
 public:
  // Both must outlive the object.
  ReadingCommands(RunView& view, bool json, std::ostream& out)
      : view_(view), json_(json), out_(out) {}

  absl::Status ShowStatus();
  // NotFound: no step has one of the metrics.
  absl::Status Steps(const StepsOptions& options);
  // NotFound: there are none.
  absl::Status Samples(SamplesOptions options);
  // Prints the memory of a step, compared with the plan.
  absl::Status Memory(MemoryOptions options);

 private:
  absl::StatusOr<v1::ListStepsResponse> GatherSteps(const StepsOptions& options);
  absl::Status CheckMetrics(const StepsOptions& options, const v1::ListStepsResponse& steps);
  std::string StepsEnd(const StepsOptions& options, const v1::ListStepsResponse& steps);

  RunView& view_;
  const bool json_;
  std::ostream& out_;
};

}  // namespace tandem
