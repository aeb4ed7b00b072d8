#include <cstdlib>
#include <string_view>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/comm/cuda/nccl_api.h"

namespace tandem {
namespace {

struct Pin {
  const char* name;
  const char* value;
};
// Otherwise NCCL chooses algorithm and protocol by size and machine, and the bits of a sum depend
// on the choice. The configuration of a communicator has no field for either.
constexpr Pin kPins[] = {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple"}};

bool Holds(const Pin& pin) {
  const char* const set = std::getenv(pin.name);
  return set != nullptr && std::string_view(set) == pin.value;
}

}  // namespace

void PinNcclSums() {
  for (const Pin& pin : kPins) {
    if (Holds(pin)) continue;
    if (const char* const set = std::getenv(pin.name); set != nullptr) {
      LogWarn("{}={} is replaced by {}: with other values, sums do not repeat bit for bit",
              pin.name, set, pin.value);
    }
    setenv(pin.name, pin.value, 1);
  }
}

absl::Status CheckNcclSumsPinned() {
  for (const Pin& pin : kPins) {
    if (!Holds(pin)) {
      return FailedPrecondition(
          "{} is not {}: a process that uses NCCL must call PinNcclSums before it starts threads; "
          "without it, sums do not repeat bit for bit",
          pin.name, pin.value);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
