// What one pass asks of an engine with so many slots, every one of which takes the next sample as
// soon as it is free: continuous batching, first come first served, with lengths that are known.
// Pure: no clock, no threads; equal jobs give equal replays.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// One sample of a pass.
struct SlotJob {
  int64_t prefill = 0;  // tokens computed when it gets its slot
  int64_t tokens = 0;   // engine steps that it keeps the slot, one new token in each
};

// What the engine has done at a moment.
struct EngineWork {
  int64_t steps = 0;   // engine steps since the start of the pass
  int64_t tokens = 0;  // tokens computed since then, prefilled ones included
};

struct SlotReplay {
  std::vector<EngineWork> ends;  // when jobs[i] was done
  EngineWork all;                // when all were
};

// Jobs take slots in their order. `slots`: at least 1. O(jobs log slots).
SlotReplay ReplaySlots(const std::vector<SlotJob>& jobs, int64_t slots);

}  // namespace tandem
