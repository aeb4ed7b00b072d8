// The threads on which gRPC calls back when a call of its asynchronous interface ends.
#pragma once

namespace tandem {

// Call it before a call of a stub's asynchronous interface is made; the first time it keeps the
// threads until the process ends. Otherwise gRPC joins them when the last channel with such calls
// is destroyed, even if that happens on one of them, and then frees what it goes on to read: a
// call's context holds its channel, and is often destroyed by its callback. Thread-safe.
void KeepCallbackThreads();

}  // namespace tandem
