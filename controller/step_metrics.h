// The numbers of a step, under verl's names (verl utils metric_utils.py).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "controller/phase_recorder.h"
#include "controller/progress.h"
#include "controller/sample_store.h"

namespace tandem {

struct StepFacts {
  int64_t step = 0;
  uint64_t epoch = 0;
  int ranks = 1;
  int64_t max_response_tokens = 0;
  int64_t max_prompt_tokens = 0;
  LogProbComparison log_probs;
  std::map<std::string, double> trainer;       // averaged over mini-batches
  std::map<std::string, double> reward_terms;  // means over samples
};

// critic/*, response_length/*, prompt_length/*, global_seqlen/*, timing_s/*, timing_per_token_ms/*,
// perf/*, training/*, and what is in `facts`.
std::map<std::string, double> StepMetrics(const StepFacts& facts,
                                          const std::vector<SampleMeta>& samples,
                                          const PhaseRecorder& phases);

}  // namespace tandem
