// The kernel tables of the instruction set this file is compiled for.
#pragma once

#include "common/ops/cpu/kernels/adapter.h"
#include "common/ops/cpu/kernels/attention.h"
#include "common/ops/cpu/kernels/backward.h"
#include "common/ops/cpu/kernels/gemm.h"
#include "common/ops/cpu/kernels/rows.h"

namespace tandem {
namespace {

template <typename T>
constexpr KernelSet MakeKernelSet(const char* name, const char* numerics) {
  KernelSet set = {};
  set.name = name;
  set.numerics = numerics;
  set.gemm_cut = GemmContext<T>::kCut;
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
  set.round = RoundRow<T>;
  set.inverse_rms = InverseRmsOf<T>;
  set.rms_norm_back = RmsNormBack<T>;
  set.rms_norm_weight = RmsNormWeight<T>;
  set.silu_mul_back = SiluMulBack<T>;
  set.rope_back = RopeBack<T>;
  set.add_rows = AddRows<T>;
  set.add_float_rows = AddRows<float>;
  set.dot = DotRows<T>;
  set.softmax_back = SoftmaxBack<T>;
  set.logits_back = LogitsBack<T>;
  set.rank_product = RankProduct<T, float>;
  set.rank_product_of_floats = RankProduct<float, T>;
  return set;
}

}  // namespace
}  // namespace tandem
