// Ranks on devices whose memory the host may not touch.
#pragma once

#include <memory>

#include "tests/fakes/guarded_backend.h"
#include "tests/trainer_worker/trainer_ranks.h"

namespace tandem::testing {

inline std::unique_ptr<Backend> MakeGuardedBackend() {
  return std::make_unique<GuardedBackend>(MakeHostBackend());
}

}  // namespace tandem::testing
