// Waits for one socket.
#pragma once

#include "common/base/clock.h"

namespace tandem {

// Waits until one of poll's `events`, or an error, is there. False: `deadline`, of RealClock, has
// passed; a deadline in the past looks once.
bool WaitForSocket(int fd, short events, Instant deadline);

}  // namespace tandem
