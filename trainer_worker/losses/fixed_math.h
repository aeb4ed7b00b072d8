// exp and sum with the same bits on every machine. LibTorch's own are not: MKL chooses the
// algorithm of exp, and ATen the order of a sum, by the CPU they run on. All other operations of
// the losses are elementwise and exactly rounded, or sums of zeros and ones.
#pragma once

#include <ATen/ATen.h>

namespace tandem {

// exp(x), computed in double and rounded once to the dtype of x, float or double. Differentiable.
at::Tensor FixedExp(const at::Tensor& x);

// Sum of all elements, one after the other in double, rounded once to the dtype of x, float or
// double. A scalar tensor, differentiable.
at::Tensor FixedSum(const at::Tensor& x);

}  // namespace tandem
