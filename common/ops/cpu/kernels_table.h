// The kernel tables of the instruction set this file is compiled for.
#pragma once

#include "common/ops/cpu/kernels_attention.h"
#include "common/ops/cpu/kernels_gemm.h"
#include "common/ops/cpu/kernels_logits.h"
#include "common/ops/cpu/kernels_rows.h"

namespace tandem {
namespace {

template <typename T>
constexpr KernelSet MakeKernelSet(const char* name) {
  KernelSet set = {};
  set.name = name;
  set.gemm = Gemm<T>;
  set.rms_norm = RmsNorm<T>;
  set.add = AddRow<T>;
  set.silu_mul = SiluMul<T>;
  set.rope = Rope<T>;
  set.store_kv = StoreKv<T>;
  set.attention_scratch = AttentionScratchBytes<T>;
  set.attention = Attention<T>;
  set.chunk_stats = LogitChunkStats;
  set.combine_chunks = CombineChunks;
  set.exp_logits = ExpLogits;
  return set;
}

}  // namespace
}  // namespace tandem
