// Operands and calls of the counterparts.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/bench/ops/counterparts/counterparts.h"

namespace tandem::bench {

inline at::Tensor Random(at::IntArrayRef sizes, at::ScalarType type = at::kBFloat16) {
  return at::randn(sizes, at::TensorOptions().dtype(at::kFloat)).to(type);
}
inline at::Tensor RandomIds(int64_t count, int64_t vocab) {
  return at::randint(vocab, {count}, at::TensorOptions().dtype(at::kLong));
}
inline at::Tensor Leaf(at::Tensor tensor) { return tensor.requires_grad_(true); }

// What needs no gradients runs as in torch.inference_mode().
template <typename Body>
Counterpart Forward(std::string name, Body body) {
  return {std::move(name), [=]() mutable {
            const c10::InferenceMode guard;
            body();
          }};
}

inline Counterpart PartOf(Counterpart counterpart) {
  counterpart.part = true;
  return counterpart;
}

// The backward pass alone, of an `out` computed once.
inline Counterpart Backward(std::string name,
                            const at::Tensor& out,
                            const std::vector<at::Tensor>& inputs) {
  const at::Tensor dout = at::randn_like(out);
  return {std::move(name),
          [=] { torch::autograd::grad({out}, inputs, {dout}, /*retain_graph=*/true); }};
}

}  // namespace tandem::bench
