// Where every thread of this process is, for the log of a process that hangs. Linux only.
#pragma once

#include <absl/time/time.h>

namespace tandem {

// Writes the name and the stack of every thread but the caller's to `fd`, as "module(+offset)"
// lines, which addr2line -e MODULE turns into source lines. A thread that does not answer within a
// third of `patience`, as it is stuck in the kernel, is named with that, and so are those that were
// not asked because `patience` was over. Takes over SIGURG. Not thread-safe.
void WriteThreadStacks(int fd, absl::Duration patience = absl::Seconds(3));

}  // namespace tandem
