// What workers have to do and wait for, as their heartbeats tell (docs/reference/api.md).
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

// Of a rollout's generator.
struct GeneratorLoad {
  int64_t queued = 0;   // calls that wait for the engine thread
  int64_t running = 0;  // sequences
  int64_t waiting = 0;
  int64_t kv_blocks = 0;
  int64_t kv_blocks_used = 0;
  // Since the process began.
  int64_t preemptions = 0;
  int64_t generated_tokens = 0;
  int64_t prefill_tokens = 0;
  int64_t prefix_hit_tokens = 0;  // not prefilled, as another sample of the group had been
  // The most of a forward pass under the weights of `peak_version`; -1: there was none.
  int64_t peak_version = -1;
  int64_t peak_waiting = 0;
  int64_t peak_kv_blocks_used = 0;
};

struct CollectiveNote {
  std::string name;   // "all-gather"; empty: there was none
  int64_t bytes = 0;  // of this rank's result
  bool running = false;
  double seconds = 0;  // since it began, if it is running; else since it ended
  int64_t count = 0;   // of all collectives since the process began
};

// Of a trainer.
struct TrainingLoad {
  std::string layer;        // "layer 7", where a pass is; empty: no pass runs
  int64_t shard_bytes = 0;  // of this rank's weights, masters and moments, wherever they lie
  CollectiveNote last_collective;
};

}  // namespace tandem
