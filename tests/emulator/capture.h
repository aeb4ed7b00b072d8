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
  kVoid,  // a call that is not allowed during a capture was made meanwhile
  kWhole,
};

// This thread begins a capture; false if the stream is being captured already.
bool BeginCapture(CudaStream stream);
Captured EndCapture(CudaStream stream, Work* work);
bool IsCaptured(CudaStream stream);
// Makes this thread's capture void; false if it captures no stream.
bool SpoilCapture();
// An error if the capture of `stream` is void.
absl::Status CheckCapture(CudaStream stream);

}  // namespace tandem::emulator
