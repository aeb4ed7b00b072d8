// Ranks on emulated GPUs.
#pragma once

#include <memory>

#include "common/backend/cuda_backend.h"
#include "tests/emulator/emulated_cuda.h"

namespace tandem::testing {

// With streams as late as the environment says.
inline std::unique_ptr<Backend> MakeEmulatedBackend() {
  return MakeCudaBackend(
             std::make_unique<emulator::EmulatedCuda>(emulator::OptionsFromEnvironment()), 0)
      .value();
}

}  // namespace tandem::testing
