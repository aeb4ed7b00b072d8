// The threads of emulated blocks, taking turns on one thread of the host.
#pragma once

#include <cstdint>
#include <functional>

namespace tandem::emulator {

// Numbers from a seed, equal on every machine (splitmix64).
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t mixed = state_ += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return mixed ^ mixed >> 31;
  }
  // 0 to count - 1.
  uint64_t Below(uint64_t count) { return Next() % count; }

 private:
  uint64_t state_;
};

inline constexpr int kMaxFibers = 2048;

// Runs `body` once per fiber 0..fibers-1 (whole warps of 32) until all have returned. A fiber runs
// until it parks, yields or returns; who is next is drawn from `numbers`: warps have a drawn order
// in which the first that can go on does, so that warps run far ahead of others, and now and then
// the order is drawn anew; lanes are drawn one by one. Returns false if fibers are left that are
// parked for ever: they can never be continued, and the process has to end.
bool RunFibers(int fibers, Numbers& numbers, const std::function<void(int)>& body);

// From inside a body.
int CurrentFiber();
void Park();           // until Wake
void Wake(int fiber);  // one that is parked
void Yield();          // others may go on first

}  // namespace tandem::emulator
