// Norms, activations, residual adds and table rows.
#include <ATen/ops/embedding_dense_backward.h>

#include "tests/bench/ops/counterparts/operands.h"

namespace tandem::bench {
namespace {

// As HF transformers writes it.
at::Tensor EagerRmsNorm(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor mean = wide.pow(2).mean({-1}, /*keepdim=*/true);
  return weight * (wide * at::rsqrt(mean + 1e-5)).to(at::kBFloat16);
}

}  // namespace

Counterparts RmsNormCounterparts(int64_t rows, int64_t cols) {
  const at::Tensor x = Random({rows, cols}), weight = Random({cols});
  return {Forward("rms_norm", [=] { at::rms_norm(x, {cols}, weight, 1e-5); }),
          Forward("eager", [=] { EagerRmsNorm(x, weight); })};
}

Counterparts RmsNormBackwardCounterparts(int64_t rows, int64_t cols) {
  const at::Tensor x = Leaf(Random({rows, cols})), weight = Leaf(Random({cols}));
  return {Backward("rms_norm", at::rms_norm(x, {cols}, weight, 1e-5), {x, weight}),
          Backward("eager", EagerRmsNorm(x, weight), {x, weight})};
}

Counterparts SiluMulCounterparts(int64_t rows, int64_t cols) {
  const at::Tensor gate_up = Random({rows, 2 * cols});
  const at::Tensor gate = gate_up.narrow(1, 0, cols), up = gate_up.narrow(1, cols, cols);
  at::Tensor silu = Random({rows, cols}), out = Random({rows, cols});
  return {Forward("eager", [=] { at::silu(gate).mul(up); }), Forward("out", [=]() mutable {
            at::silu_out(silu, gate);
            at::mul_out(out, silu, up);
          })};
}

Counterparts SiluMulBackwardCounterparts(int64_t rows, int64_t cols) {
  const at::Tensor leaf = Leaf(Random({rows, 2 * cols}));
  const at::Tensor out = at::silu(leaf.narrow(1, 0, cols)) * leaf.narrow(1, cols, cols);
  const at::Tensor gate = Random({rows, cols}), up = Random({rows, cols});
  const at::Tensor dout = Random({rows, cols});
  return {Backward("autograd", out, {leaf}), Forward("direct", [=] {
            at::silu_backward(dout.mul(up), gate);
            dout.mul(at::silu(gate));
          })};
}

Counterparts AddCounterparts(int64_t rows, int64_t cols) {
  const at::Tensor x = Random({rows, cols}), delta = Random({rows, cols});
  return {Forward("eager", [=] { x.add(delta); }), Forward("add_", [=] { x.add_(delta); })};
}

Counterparts RoundCounterparts(int64_t rows, int64_t cols) {
  const at::Tensor wide = Random({rows, cols}, at::kFloat), out = Random({rows, cols});
  return {Forward("eager", [=] { wide.to(at::kBFloat16); }),
          Forward("copy_", [=] { out.copy_(wide); })};
}

Counterparts EmbedCounterparts(int64_t rows, int64_t vocab, int64_t cols) {
  const at::Tensor table = Random({vocab, cols}), ids = RandomIds(rows, vocab);
  at::Tensor out = Random({rows, cols});
  return {Forward("embedding", [=] { at::embedding(table, ids); }),
          Forward("out", [=]() mutable { at::index_select_out(out, table, 0, ids); })};
}

Counterparts EmbedBackwardCounterparts(int64_t rows, int64_t vocab, int64_t cols) {
  const at::Tensor table = Random({vocab, cols}, at::kFloat), ids = RandomIds(rows, vocab);
  const at::Tensor dx = Random({rows, cols}, at::kFloat);
  return {Forward("index_add_", [=] { table.index_add_(0, ids, dx); }),
          Forward("dense", [=] { at::embedding_dense_backward(dx, ids, vocab, -1, false); })};
}

}  // namespace tandem::bench
