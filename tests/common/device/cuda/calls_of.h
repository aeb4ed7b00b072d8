// How often each call of an emulated GPU was made.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/emulator/emulated_cuda.h"

namespace tandem::testing {

inline int64_t CallsOf(const emulator::EmulatedCuda& cuda, const std::string& name) {
  const std::vector<std::string> calls = cuda.calls();
  return std::count(calls.begin(), calls.end(), name);
}

}  // namespace tandem::testing
