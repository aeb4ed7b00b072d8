// The adapters that training starts with.
#pragma once

#include <cstdint>

namespace tandem {

// `count` elements of A [rank, in], from element `first` in row-major order: Kaiming-uniform with
// a = sqrt(5) (He et al. 2015, as PEFT and nn.Linear), which is U(-1/sqrt(in), 1/sqrt(in)). Each is
// a function of (seed, tensor, element), whoever computes it; `tensor` is LoraTarget::tensor. B
// begins as zeros, so that the first merged weight is the base.
void InitialLoraA(
    uint64_t seed, int64_t tensor, int64_t in, int64_t first, int64_t count, float* out);

}  // namespace tandem
