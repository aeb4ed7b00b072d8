#include "controller/generation/generation_mode.h"

#include "common/base/status.h"

namespace tandem {

absl::StatusOr<std::vector<Prompt>> DrawPrompts(PromptSource& prompts, int64_t count) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<Prompt> drawn, prompts.NextBatch(count));
  if (drawn.front().epoch < kTrainEpochs) return drawn;
  return MakeStatus(absl::StatusCode::kOutOfRange,
                    "the training data has been passed over {} times, more than sample ids can "
                    "tell apart: give more data or end the run here",
                    kTrainEpochs);
}

}  // namespace tandem
