#include "controller/run/trainer_group_counter.h"

#include <limits>

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>

#include "common/base/status.h"
#include "common/formats/files.h"

namespace tandem {

absl::StatusOr<int64_t> TrainerGroupCounter::Next() {
  int64_t last = 0;
  if (PathExists(path_)) {
    TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path_));
    const bool is_number = absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &last) && last >= 0 &&
                           last < std::numeric_limits<int32_t>::max();
    if (!is_number) {
      return MakeStatus(
          absl::StatusCode::kDataLoss,
          "{} must hold the number of the last group of trainers, but holds '{}': stop the workers "
          "of this run and remove the file",
          path_, text.substr(0, 40));
    }
  }
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(path_, std::to_string(last + 1) + "\n"));
  return last + 1;
}

}  // namespace tandem
