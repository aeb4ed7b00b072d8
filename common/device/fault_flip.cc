#include "common/device/fault_flip.h"

#include <string>

#include "common/base/check.h"
#include "common/process/fault_injection.h"

namespace tandem {

void FaultFlip(Device* device, const char* point, void* byte) {
  if (!FaultFlips(point)) return;
  unsigned char held = 0;
  device->Copy(&held, byte, 1);
  absl::Status copied = device->Synchronize();
  held ^= 1;
  device->Copy(byte, &held, 1);
  copied.Update(device->Synchronize());
  TANDEM_CHECK(copied.ok(), std::string("TANDEM_FAULT at ") + point + ": " + copied.ToString());
}

}  // namespace tandem
