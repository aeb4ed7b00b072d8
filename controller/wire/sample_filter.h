// The conditions on samples that users write: reward<=0 and length>200 and kind=mixed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "controller/store/sample_condition.h"

namespace tandem {

// filter := condition { "and" condition }; condition := field sign value. The fields are reward,
// length, prompt_length, advantage, min_log_prob, repetition, version, group and index, whose value
// is a number, and end (stop, length, aborted, cut) and kind (mixed, all_right, all_wrong,
// all_equal, evicted), which take = and != alone. An empty text has no condition.
// InvalidArgument: the message says what is wrong, and what may stand there.
absl::StatusOr<std::vector<SampleCondition>> ParseSampleFilter(std::string_view text);

struct SampleOrder {
  SampleField field = SampleField::kGroup;
  bool descending = false;
};

// "reward", or "-reward" for the largest first; "": null, the order of the samples' ids.
// InvalidArgument: a field that is none.
absl::StatusOr<std::optional<SampleOrder>> ParseSampleOrder(std::string_view text);

}  // namespace tandem
