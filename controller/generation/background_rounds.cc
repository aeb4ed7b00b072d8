#include "controller/generation/background_rounds.h"

#include <utility>

namespace tandem {

BackgroundRounds::BackgroundRounds(const StepContext& context,
                                   const TrainOptions& options,
                                   std::unique_ptr<RoundRunner> runner,
                                   int64_t max_staleness)
    : RoundGeneration(context, options, std::move(runner)),
      limit_(options.partial.train_batch_size, max_staleness) {}

void BackgroundRounds::CountAndForget(StepBatch& batch) {
  CountBackgroundRounds(*background_, batch);
  background_.reset();
}

}  // namespace tandem
