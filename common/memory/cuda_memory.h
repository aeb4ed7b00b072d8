// Memory of a GPU that a worker uses in addition to its regions: the ops' scratch, by the functions
// with which the ops allocate it (common/memory/cuda_scratch.h), and that of the driver and the
// libraries, which no ledger counts. Upper bounds in bytes, once the worker has met the largest
// batches of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/memory/activation_bytes.h"
#include "common/model_spec/model_spec.h"
#include "common/types/batch_limits.h"

namespace tandem {

// What the driver takes of the device for a process that uses it, kernels included. `gpu_bench
// context` measures it: 527 MiB on an H200 with driver 580. Others report 300 to 620 MiB on GPUs of
// that size, and less on small ones.
inline constexpr int64_t kCudaContextBytes = int64_t{544} << 20;
// What a recorded step takes of the device for each of its kernels. `gpu_bench context` measures
// it: 2 KiB on an H200 with driver 580.
inline constexpr int64_t kCudaGraphNodeBytes = int64_t{4} << 10;
// Memory of NCCL's channels in a group of ranks with a GPU each. The figure is not measured here:
// it grows with the ranks and their links, up to about this much within one host.
inline constexpr int64_t kNcclBytes = int64_t{512} << 20;
// One use of the device's memory.
struct CudaPart {
  std::string what;  // "head", "attention", ...
  int64_t bytes = 0;
};

struct CudaTrainerOptions {
  int64_t sequence_tokens = 1;  // positions of the rope table
  int64_t pairs = 1;
  bool recompute = false;  // layers run forward again in backward
  BatchLimits train;
  std::vector<BatchLimits> scored;  // of passes without a backward pass
};
// Scratch of a trainer (tag workspace).
std::vector<CudaPart> TrainerCudaScratch(const ModelSpec& spec, const CudaTrainerOptions& options);
// Memory of the driver and of NCCL.
std::vector<CudaPart> TrainerDriverBytes(const CudaTrainerOptions& options);

struct CudaRolloutOptions {
  int64_t sequence_tokens = 1;
  int64_t sequences = 1;       // rollout.max_num_seqs
  int64_t batched_tokens = 1;  // rollout.max_num_batched_tokens
};
std::vector<CudaPart> RolloutCudaScratch(const ModelSpec& spec, const CudaRolloutOptions& options);
// Memory of the driver: a context, and a graph for every size of a decoding step and every length
// of sequences for which steps are recorded.
std::vector<CudaPart> RolloutDriverBytes(const ModelSpec& spec, const CudaRolloutOptions& options);

}  // namespace tandem
