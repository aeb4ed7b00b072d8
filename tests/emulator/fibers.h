// The threads of one emulated block, taking turns on one thread of the host.
#pragma once

#include <cstdint>
#include <functional>

namespace tandem::emulator {

// Which thread runs first, and which block. What a kernel computes may not depend on it: where it
// does, a barrier is missing.
enum class Order { kForward, kReverse };

// Runs `body` once per thread 0..threads-1 until all have returned; a body lets others go on by
// Yield. Aborts with `name` when all threads left wait for ever.
void RunFibers(int threads, Order order, const char* name, const std::function<void(int)>& body);

// From inside a body: the others' turn.
void Yield();
// A barrier was passed: the block is not stuck.
void NoteProgress();

}  // namespace tandem::emulator
