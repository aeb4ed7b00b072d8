// What the programs that measure models have in common.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "tests/gpu/model_bench/bench_gpu.h"
#include "tests/gpu/model_bench/bench_model.h"
#include "tests/gpu/model_bench/figures.h"

namespace tandem::testing {

struct BenchMode {
  std::string name;  // the first argument
  absl::Status (*bench)(const BenchGpu& gpu, const BenchModel& model, Figures& figures);
  std::vector<std::string> models;  // unless the further arguments name others
};

// Runs the mode that argv names on OpenGpu()'s device. 0: it measured something; kNoGpu: there is
// no GPU, or nothing fits it; 1 with the reason: anything else.
int BenchMain(int argc, char** argv, const std::vector<BenchMode>& modes);

}  // namespace tandem::testing
