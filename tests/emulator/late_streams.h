// Streams of the emulator that do their work as late as CUDA allows, only when somebody waits for
// it: where a stream should wait for another and does not, the other's work is missing.
#pragma once

#include <functional>

#include "common/device/cuda/launch.h"

namespace tandem::emulator {

// From now on `stream` is late; until it is closed, which drops what is left.
void OpenLate(CudaStream stream);
void CloseLate(CudaStream stream);
// False: the stream is not late, and `work` is still there.
bool KeepLate(CudaStream stream, std::function<void()>& work);

// A stream that is not late waits by doing what it waits for.
void RecordLate(CudaEvent event, CudaStream stream);
void WaitLate(CudaStream stream, CudaEvent event);
// These do nothing with streams that are not late, and events that no late stream recorded.
void DoLate(CudaStream stream);
void DoLate(CudaEvent event);
bool HasHappenedLate(CudaEvent event);
void ForgetLate(CudaEvent event);

}  // namespace tandem::emulator
