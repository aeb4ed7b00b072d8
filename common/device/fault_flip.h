// A byte of a device's memory that changes by itself, where TANDEM_FAULT says so
// (common/process/fault_injection.h).
#pragma once

#include "common/device/device.h"

namespace tandem {

// Flips the lowest bit of the byte at `byte`, which `device` can copy from and to, if FaultFlips
// says so of `point`; waits for the device then, and ends the process if that fails. Without the
// variable it costs one comparison.
void FaultFlip(Device* device, const char* point, void* byte);

}  // namespace tandem
