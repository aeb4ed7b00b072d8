#include "controller/partial_rollout/slot_schedule.h"

#include <functional>
#include <queue>
#include <utility>

#include "common/base/check.h"

namespace tandem {

SlotReplay ReplaySlots(const std::vector<SlotJob>& jobs, int64_t slots) {
  TANDEM_CHECK(slots >= 1, "an engine has slots");
  using End = std::pair<int64_t, size_t>;  // engine step, job
  std::priority_queue<End, std::vector<End>, std::greater<>> running;
  SlotReplay replay;
  replay.ends.resize(jobs.size());
  EngineWork now;
  for (size_t next = 0; next < jobs.size() || !running.empty();) {
    for (; next < jobs.size() && std::ssize(running) < slots; ++next) {
      now.tokens += jobs[next].prefill;
      running.emplace(now.steps + jobs[next].tokens, next);
    }
    const int64_t end = running.top().first;
    now.tokens += (end - now.steps) * std::ssize(running);
    now.steps = end;
    for (; !running.empty() && running.top().first == end; running.pop()) {
      replay.ends[running.top().second] = now;
    }
  }
  replay.all = now;
  return replay;
}

}  // namespace tandem
