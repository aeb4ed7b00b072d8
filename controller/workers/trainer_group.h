// The group that the trainers of a run form.
#pragma once

#include <atomic>
#include <cstdint>

namespace tandem {

// What the clients of a run's workers share: one of a trainer that connects anew goes on in the
// group which was formed before, and rollouts are told the newest group, so that they refuse the
// weights of a trainer which was replaced.
struct TrainerGroup {
  std::atomic<int64_t> generation{0};  // of the last Reset
};

}  // namespace tandem
