#include <cmath>
#include <optional>
#include <tuple>

#include "tests/bench/ops/counterparts/operands.h"

namespace tandem::bench {
namespace {

struct AttentionOperands {
  AttentionOperands(const AttentionShape& shape, int64_t sequences, int64_t rows, int64_t context)
      : group(shape.heads / shape.kv_heads),
        causal(rows == context),  // one query sees all positions
        q(Random({sequences, shape.heads, rows, shape.head_dim})),
        k(Random({sequences, shape.kv_heads, context, shape.head_dim})),
        v(Random({sequences, shape.kv_heads, context, shape.head_dim})) {}
  int64_t group;
  bool causal;
  at::Tensor q, k, v;
};

// HF transformers' repeat_kv.
at::Tensor Repeat(const at::Tensor& x, int64_t group) {
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), group, x.size(2), x.size(3)})
      .reshape({x.size(0), x.size(1) * group, x.size(2), x.size(3)});
}

}  // namespace

Counterparts AttentionCounterparts(const AttentionShape& shape,
                                   int64_t sequences,
                                   int64_t rows,
                                   int64_t context) {
  const AttentionOperands o(shape, sequences, rows, context);
  return {Forward("sdpa",
                  [=] {
                    at::scaled_dot_product_attention(o.q, Repeat(o.k, o.group),
                                                     Repeat(o.v, o.group), {}, 0.0, o.causal);
                  }),
          Forward("gqa", [=] {
            at::scaled_dot_product_attention(o.q, o.k, o.v, {}, 0.0, o.causal, std::nullopt, true);
          })};
}

Counterparts AttentionReformulations(const AttentionShape& shape,
                                     int64_t sequences,
                                     int64_t rows,
                                     int64_t context) {
  const AttentionOperands o(shape, sequences, rows, context);
  const at::Tensor k = Repeat(o.k, o.group), v = Repeat(o.v, o.group);
  Counterparts counterparts = {
      Forward("repeated", [=] { at::scaled_dot_product_attention(o.q, k, v, {}, 0.0, o.causal); })};
  if (rows == 1) {
    const at::Tensor q = o.q.reshape({sequences, shape.kv_heads, o.group, shape.head_dim});
    counterparts.push_back(
        Forward("grouped", [=] { at::scaled_dot_product_attention(q, o.k, o.v, {}, 0.0, false); }));
  }
  return counterparts;
}

Counterparts AttentionBackwardCounterparts(const AttentionShape& shape,
                                           int64_t sequences,
                                           int64_t rows) {
  const AttentionOperands o(shape, sequences, rows, rows);
  const at::Tensor q = Leaf(o.q), k = Leaf(o.k), v = Leaf(o.v);
  const at::Tensor out =
      at::scaled_dot_product_attention(q, Repeat(k, o.group), Repeat(v, o.group), {}, 0.0, true);
  const c10::InferenceMode guard;
  const at::Tensor all_k = Repeat(o.k, o.group), all_v = Repeat(o.v, o.group);
  const auto [result, log_sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(o.q, all_k, all_v, 0.0, true);
  const at::Tensor dout = at::randn_like(result);
  const auto kernel = [=, r = result, l = log_sums] {
    at::_scaled_dot_product_flash_attention_for_cpu_backward(dout, o.q, all_k, all_v, r, l, 0.0,
                                                             true);
  };
  return {Backward("autograd", out, {q, k, v}), PartOf(Forward("kernel", kernel))};
}

}  // namespace tandem::bench
