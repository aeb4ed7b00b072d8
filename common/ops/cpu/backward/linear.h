// Gradients of linear layers. Both are products of matrices in panels.
//
// Gradients of separate adapters, y += s B (A x): with t = A x and dt = s Bᵀ dy they are dB = s dy
// tᵀ, dA = dt xᵀ and dx += Aᵀ dt. t and dt are fp32 and not rounded. With dropout, drop(x) = c m∘x:
// t = c A (m∘x), dA = (c dt) (m∘x)ᵀ and dx += m∘(c Aᵀ dt).
#pragma once

#include <cstdint>

#include "common/ops/backward_ops.h"
#include "common/ops/cpu/backward/context.h"

namespace tandem {

class LinearBackward {
 public:
  explicit LinearBackward(CpuBackwardContext& context) : context_(context) {}

  int64_t workspace_bytes() const;
  void Input(Matrix dout, const LinearWeight& weight, Matrix din);
  void Weights(Matrix dout, Matrix in, float* dweight, float* dbias);
  void AdapterWeights(Matrix dout,
                      Matrix in,
                      const LinearWeight& weight,
                      const LinearAdapterGradients& gradients);

 private:
  // A packed weight's transpose as panels.
  std::byte* Transposed(const std::byte* packed, int64_t rows, int64_t cols, Workspace& workspace);
  // s dout_i B_i for every part of the adapters, [rows, parts * rank]; zero for a part without an
  // adapter.
  float* RankGradient(Matrix dout, const LinearWeight& weight);
  void ScaleRows(float* values, int64_t rows, int64_t cols, float factor);
  // gradient [rank, cols] += dt_iᵀ in, dt [rows, parts * rank].
  void AddDownGradient(
      const LinearAdapter& adapter, int part, const float* dt, Matrix in, float* gradient);
  // The gradient of the input if adapters drop elements; `call` is the product with the weight
  // alone.
  void KeptInput(Matrix dout, const LinearWeight& weight, GemmCall call, Matrix din);

  CpuBackwardContext& context_;
  Workspace adapter_panels_;             // transposed A of adapters; with dropout not transposed
  Workspace rank_rows_, rank_gradient_;  // A x, and its gradient
  Workspace wide_b_;                     // B in fp32
  Workspace dropped_;                    // inputs of adapters after dropout, some rows at a time
  Workspace kept_sums_;                  // sums of the input gradients of such rows
};

}  // namespace tandem
