#include "tests/bench/ops/counterparts/operands.h"

namespace tandem::bench {
namespace {

// q, k, v as the projection leaves them: [sequences, rows, heads * head_dim] by heads.
struct RopeOperands {
  RopeOperands(const AttentionShape& s, int64_t sequences, int64_t rows) {
    const at::Tensor qkv = Random({sequences, rows, s.heads + 2 * s.kv_heads, s.head_dim});
    q = qkv.narrow(2, 0, s.heads).transpose(1, 2);
    k = qkv.narrow(2, s.heads, s.kv_heads).transpose(1, 2);
    v = qkv.narrow(2, s.heads + s.kv_heads, s.kv_heads).transpose(1, 2);
    cos = Random({1, 1, rows, s.head_dim});
    sin = Random({1, 1, rows, s.head_dim});
    turns = at::view_as_complex(Random({1, 1, rows, s.head_dim / 2, 2}, at::kFloat));
  }
  at::Tensor q, k, v, cos, sin, turns;
};

// HF transformers' apply_rotary_pos_emb of one tensor.
at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor turned = at::cat({-x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
  return x * cos + turned * sin;
}

at::Tensor RotatePairs(const at::Tensor& x, const at::Tensor& turns) {
  const at::Tensor pairs =
      x.to(at::kFloat).reshape({x.size(0), x.size(1), x.size(2), x.size(3) / 2, 2});
  return at::view_as_real(at::view_as_complex(pairs) * turns).flatten(3).to(at::kBFloat16);
}

}  // namespace

Counterparts RopeCounterparts(const AttentionShape& shape,
                              int64_t sequences,
                              int64_t rows,
                              int64_t context) {
  const RopeOperands o(shape, sequences, rows);
  const at::Tensor keys = Random({sequences, shape.kv_heads, context, shape.head_dim});
  const at::Tensor values = Random({sequences, shape.kv_heads, context, shape.head_dim});
  const at::Tensor last_keys = keys.narrow(2, context - rows, rows);
  const at::Tensor last_values = values.narrow(2, context - rows, rows);
  return {Forward("eager",
                  [=] {
                    Rotate(o.q, o.cos, o.sin);
                    last_keys.copy_(Rotate(o.k, o.cos, o.sin));
                    last_values.copy_(o.v);
                  }),
          Forward("complex", [=] {
            RotatePairs(o.q, o.turns);
            last_keys.copy_(RotatePairs(o.k, o.turns));
            last_values.copy_(o.v);
          })};
}

Counterparts RopeBackwardCounterparts(const AttentionShape& shape,
                                      int64_t sequences,
                                      int64_t rows) {
  const RopeOperands o(shape, sequences, rows);
  const at::Tensor back = -o.sin, turns = at::conj_physical(o.turns);
  return {Forward("eager",
                  [=] {
                    Rotate(o.q, o.cos, back);
                    Rotate(o.k, o.cos, back);
                  }),
          Forward("complex", [=] {
            RotatePairs(o.q, turns);
            RotatePairs(o.k, turns);
          })};
}

}  // namespace tandem::bench
