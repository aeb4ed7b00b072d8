#include "controller/partial_rollout/partial_options.h"

#include <algorithm>

namespace tandem {

int64_t PartialOptions::FreshPrompts(int64_t unfinished, int64_t whole) const {
  int64_t wanted = groups_per_round - unfinished;
  if (cuts_nothing()) wanted = std::min(wanted, train_batch_size - unfinished - whole);
  return std::max<int64_t>(0, wanted);
}

}  // namespace tandem
