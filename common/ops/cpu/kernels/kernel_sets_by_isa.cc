// The kernels of one instruction set. CMakeLists.txt compiles this file once for each set, with its
// options, the table's name (TANDEM_ISA_TABLE) and the set's (TANDEM_ISA_NAME, TANDEM_ISA_<NAME>).
#if defined(TANDEM_ISA_AMX)
#include "common/ops/cpu/kernels/gemm_amx.h"
#elif defined(TANDEM_ISA_AMX_EMULATED)
#include "common/ops/cpu/kernels/gemm_amx_emulated.h"
#endif
#include "common/ops/cpu/kernels/adapter.h"
#include "common/ops/cpu/kernels/attention.h"
#include "common/ops/cpu/kernels/backward.h"
#include "common/ops/cpu/kernels/gemm.h"
#include "common/ops/cpu/kernels/rows.h"

namespace tandem {
namespace {

// The numerics class of bf16 products; those of fp32 are of class seq in every set.
#if defined(TANDEM_ISA_AMX) || defined(TANDEM_ISA_AMX_EMULATED)
constexpr char kBf16Numerics[] = "amx32";
#else
constexpr char kBf16Numerics[] = "seq";
#endif

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

const KernelSets& TANDEM_ISA_TABLE() {
  static constexpr KernelSets kSets = {MakeKernelSet<BfloatBits>(TANDEM_ISA_NAME, kBf16Numerics),
                                       MakeKernelSet<float>(TANDEM_ISA_NAME, "seq")};
  return kSets;
}

}  // namespace tandem
