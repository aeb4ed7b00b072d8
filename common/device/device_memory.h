// Memory of the machine, and this process's part of it, as the system reports them. Bytes.
#pragma once

#include <cstdint>

#include "common/device/device.h"

namespace tandem {

inline constexpr int64_t kHugePageBytes = int64_t{2} << 20;

struct ProcessMemory {
  int64_t resident = 0;  // RSS: shared pages count in full
  int64_t peak_resident = 0;
};
ProcessMemory ReadProcessMemory();
// Restarts the peak from now, best effort: some systems forbid it.
void ResetProcessPeak();

// The tightest memory limit of this process's cgroups (v1 or v2) or, without a limit, the memory of
// the machine.
int64_t MemoryLimitBytes();
// The bytes below that limit that can still be allocated.
int64_t AvailableMemoryBytes();
// Memory of one CPU device: the limit divided by the devices that share the host.
int64_t CpuDeviceMemoryBytes(int devices);

// Simulates a byte of a device's memory that changes by itself, if TANDEM_FAULT asks for it
// (common/process/fault_injection.h). Flips the lowest bit of the byte at `byte`, which `device`
// can copy from and to, if FaultFlips(point) says so. It then waits for the device, and ends the
// process if that fails. Without the variable it costs one comparison.
void InjectBitFlip(Device* device, const char* point, void* byte);

}  // namespace tandem
