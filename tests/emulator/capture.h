// Streams of the emulator that keep their work instead of doing it.
#pragma once

#include <functional>
#include <vector>

#include <absl/status/status.h>

#include "common/device/cuda/launch.h"

namespace tandem::emulator {

using Work = std::vector<std::function<void()>>;

enum class Captured {
  kNot,   // the stream was not captured
  kVoid,  // something was called meanwhile that a capture does not bear
  kWhole,
};

// By this thread. False: the stream is captured already.
bool BeginCapture(CudaStream stream);
Captured EndCapture(CudaStream stream, Work* work);
bool IsCaptured(CudaStream stream);
// True where this thread captures a stream, and that capture is void from now on.
bool SpoilCapture();
// OK but for a stream whose capture is void.
absl::Status CheckCapture(CudaStream stream);

}  // namespace tandem::emulator
