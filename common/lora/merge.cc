#include "common/lora/merge.h"

#include "common/base/check.h"
#include "common/lora/merge_kernels.h"
#include "common/types/scoped_denormals.h"

namespace tandem {
namespace {

bool IsServable(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kBFloat16; }

}  // namespace

const std::vector<const MergeKernel*>& RunnableMergeKernels() {
  static const std::vector<const MergeKernel*> runnable = [] {
    std::vector<const MergeKernel*> kernels;
    const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    if (avx2 && __builtin_cpu_supports("avx512f") != 0) kernels.push_back(&kMergeAvx512);
    if (avx2) kernels.push_back(&kMergeAvx2);
    kernels.push_back(&kMergeBaseline);
    return kernels;
  }();
  return runnable;
}

void MergeRows(const MergeBlock& block) {
  TANDEM_CHECK(IsServable(block.base_dtype) && IsServable(block.out_dtype),
               "merging needs F32 or BF16");
  TANDEM_CHECK(block.rank > 0, "merging needs a rank of 1 or more");
  const ScopedDenormals denormals;  // an adapter's product may well be a denormal
  RunnableMergeKernels()[0]->merge(block);
}

}  // namespace tandem
