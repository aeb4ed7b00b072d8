// Where every thread of this process is, for the log of a process that hangs. Linux only.
#pragma once

namespace tandem {

// Writes the name and the stack of every thread but the caller's to `fd`, as "module(+offset)"
// lines, which addr2line -e MODULE turns into source lines. A thread that does not answer within a
// second, as it is stuck in the kernel, is named with that. Takes over SIGURG. Not thread-safe.
void WriteThreadStacks(int fd);

}  // namespace tandem
