#include "tests/bench/ops/counterparts.h"

#include <optional>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/core.h>

namespace tandem::bench {
namespace {

at::Tensor Random(at::IntArrayRef sizes) {
  return at::randn(sizes, at::TensorOptions().dtype(at::kFloat)).to(at::kBFloat16);
}

template <typename... Arguments>
c10::IValue Call(const char* name, Arguments... arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  std::vector<c10::IValue> stack = {std::move(arguments)...};
  op.callBoxed(&stack);
  return stack.at(0);
}

}  // namespace

void SetCounterpartThreads(int threads) { at::set_num_threads(threads); }

std::vector<Counterpart> LinearCounterparts(int64_t m, int64_t n, int64_t k) {
  const at::Tensor x = Random({m, k}), weight = Random({n, k});
  std::vector<Counterpart> counterparts;
  counterparts.push_back({"linear", [=] { at::linear(x, weight); }});
  try {
    const at::Tensor packed =
        Call("mkldnn::_reorder_linear_weight", weight, std::optional<int64_t>(m)).toTensor();
    const auto run = [=] {
      Call("mkldnn::_linear_pointwise", x, packed, std::optional<at::Tensor>(), std::string("none"),
           c10::List<std::optional<at::Scalar>>(), std::optional<std::string>());
    };
    run();
    counterparts.push_back({"packed", run});
  } catch (const c10::Error& error) {
    fmt::print(stderr, "this LibTorch has no packed oneDNN products: {}\n",
               error.what_without_backtrace());
  }
  return counterparts;
}

std::vector<Counterpart> AttentionCounterparts(const AttentionShape& shape,
                                               int64_t sequences,
                                               int64_t rows,
                                               int64_t context) {
  const int64_t group = shape.heads / shape.kv_heads;
  const at::Tensor q = Random({sequences, shape.heads, rows, shape.head_dim});
  const at::Tensor k = Random({sequences, shape.kv_heads, context, shape.head_dim});
  const at::Tensor v = Random({sequences, shape.kv_heads, context, shape.head_dim});
  const at::Tensor all_k = k.repeat_interleave(group, 1), all_v = v.repeat_interleave(group, 1);
  const bool causal = rows == context;  // one query sees all positions
  std::vector<Counterpart> counterparts;
  counterparts.push_back(
      {"sdpa", [=] { at::scaled_dot_product_attention(q, all_k, all_v, {}, 0.0, causal); }});
  counterparts.push_back(
      {"gqa",
       [=] { at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal, std::nullopt, true); }});
  if (rows == 1) {
    const at::Tensor grouped = q.reshape({sequences, shape.kv_heads, group, shape.head_dim});
    counterparts.push_back(
        {"grouped", [=] { at::scaled_dot_product_attention(grouped, k, v, {}, 0.0, false); }});
  }
  return counterparts;
}

}  // namespace tandem::bench
