// A trainer's step on one GPU: forward, loss, backward and AdamW of a training session, as a
// trainer worker runs them, over samples of random tokens.
#pragma once

#include <absl/status/status.h>

#include "tests/gpu/model_bench/bench_gpu.h"
#include "tests/gpu/model_bench/bench_model.h"
#include "tests/gpu/model_bench/figures.h"

namespace tandem::testing {

// Figures train_MODEL_tokens, tokens/s of prompts and responses, and mfu_MODEL_percent:
// TrainingFlops per second of the nominal dense bf16 peak. Seconds are those of whole steps, the
// optimizer's pass included; what is recomputed in backward does not count as work. A model that
// does not fit is not run, and says why. Internal: a step whose gradients are not numbers, or that
// changed no weight. Other errors: the device's.
absl::Status BenchTraining(const BenchGpu& gpu, const BenchModel& model, Figures& figures);

}  // namespace tandem::testing
