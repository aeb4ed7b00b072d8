// exp, sigmoid, log and sums with the same bits on every machine. LibTorch's own differ: MKL
// chooses the algorithm of exp, and ATen the order of a sum, by the CPU. All other operations of
// the losses are elementwise and exactly rounded, or sums of zeros and ones.
#pragma once

#include <cstdint>

#include "trainer_worker/losses/tensors.h"

namespace tandem {

// exp(x), computed in double and rounded once to the dtype of x, float or double. Differentiable.
at::Tensor PortableExp(const at::Tensor& x);

// 1 / (1 + exp(-x)), computed in the same way.
at::Tensor PortableSigmoid(const at::Tensor& x);

// log(x), computed in the same way.
at::Tensor PortableLog(const at::Tensor& x);

// Sum of all elements, added one after another in double and rounded once to the dtype of x, float
// or double. A scalar tensor, differentiable.
at::Tensor FixedSum(const at::Tensor& x);

// The same for the elements of each row, [num_rows]; `rows` [elements] int64 names the row of each
// element of x [elements].
at::Tensor FixedRowSum(const at::Tensor& x, const at::Tensor& rows, int64_t num_rows);

}  // namespace tandem
