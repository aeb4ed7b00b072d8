// Streams of the emulator that do their work as late as CUDA allows, which is when something waits
// for it. If a stream should wait for another and does not, the other's work is missing, and a test
// fails.
#pragma once

#include <cstdint>
#include <functional>

#include "common/device/cuda/launch.h"

namespace tandem::emulator {

// A point in a late stream's work, as the number of pieces before it.
struct LatePoint {
  CudaStream stream = nullptr;
  int64_t pieces = 0;
};
bool IsLate(CudaStream stream);
// After all that the stream has been given until now.
LatePoint LateEnd(CudaStream stream);
// Also where the stream is closed.
bool IsDone(const LatePoint& point);
// Several threads may want a stream's work done: it is done in order, a piece after the other.
void DoLate(const LatePoint& point);

// Makes `stream` late until CloseLate(), which drops the work it still holds.
void OpenLate(CudaStream stream);
void CloseLate(CudaStream stream);
// Takes `work` and returns true if the stream is late; otherwise leaves it unchanged.
bool KeepLate(CudaStream stream, std::function<void()>& work);

// A stream that is not late waits by doing the work that it waits for.
void RecordLate(CudaEvent event, CudaStream stream);
void WaitLate(CudaStream stream, CudaEvent event);
// These do nothing with streams that are not late, and events that no late stream recorded.
void DoLate(CudaStream stream);
void DoLate(CudaEvent event);
bool HasHappenedLate(CudaEvent event);
void ForgetLate(CudaEvent event);

}  // namespace tandem::emulator
