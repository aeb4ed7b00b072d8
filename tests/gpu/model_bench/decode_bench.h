// Decode and prefill of a rollout: its generator and model runner on the GPU, with graphs, sampling
// and log-probs, as a rollout worker runs them.
#pragma once

#include <absl/status/status.h>

#include "tests/gpu/model_bench/bench_gpu.h"
#include "tests/gpu/model_bench/bench_model.h"
#include "tests/gpu/model_bench/figures.h"

namespace tandem::testing {

// For each batch B, figures decode_MODEL_B_..., of steps in which every sequence gets one token:
//   tokens           tokens/s of all sequences together
//   percent          of the roofline: the seconds that DecodeStepBytes take at the bandwidth that
//                    CopyBandwidth measured here, divided by those of a step
//   nominal_percent  the same at the memory's nominal bandwidth
// Steps are timed on the host, from one to the next: what the host does between them counts.
// Then the bits are checked: log-probs of samples of every batch, and the tokens of a greedy one,
// against one forward over the whole sample. A batch that does not fit is not run, and says why.
// Errors: the device's; DataLoss: DecodeRollout::Check.
absl::Status BenchDecode(const BenchGpu& gpu, const BenchModel& model, Figures& figures);

// Figures prefill_MODEL_...: tokens, tokens/s of prompts in chunks of step_tokens; percent, MFU:
// ForwardFlops per second of the nominal dense bf16 peak.
absl::Status BenchPrefill(const BenchGpu& gpu, const BenchModel& model, Figures& figures);

}  // namespace tandem::testing
