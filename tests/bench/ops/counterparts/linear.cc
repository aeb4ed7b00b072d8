#include <optional>

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/core.h>

#include "tests/bench/ops/counterparts/operands.h"

namespace tandem::bench {
namespace {

template <typename... Arguments>
c10::IValue Call(const char* name, Arguments... arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  std::vector<c10::IValue> stack = {std::move(arguments)...};
  op.callBoxed(&stack);
  return stack.at(0);
}

}  // namespace

void SetCounterpartThreads(int threads) { at::set_num_threads(threads); }

Counterparts LinearCounterparts(int64_t m, int64_t n, int64_t k) {
  const at::Tensor x = Random({m, k}), weight = Random({n, k});
  Counterparts counterparts = {Forward("linear", [=] { at::linear(x, weight); })};
  try {
    const at::Tensor packed =
        Call("mkldnn::_reorder_linear_weight", weight, std::optional<int64_t>(m)).toTensor();
    const Counterpart run = Forward("packed", [=] {
      Call("mkldnn::_linear_pointwise", x, packed, std::optional<at::Tensor>(), std::string("none"),
           c10::List<std::optional<at::Scalar>>(), std::optional<std::string>());
    });
    run.run();
    counterparts.push_back(run);
  } catch (const c10::Error& error) {
    fmt::print(stderr, "this LibTorch has no packed oneDNN products: {}\n",
               error.what_without_backtrace());
  }
  return counterparts;
}

Counterparts LinearInputCounterparts(int64_t m, int64_t n, int64_t k) {
  const at::Tensor dout = Random({m, n}), weight = Random({n, k});
  Counterparts counterparts = LinearCounterparts(m, k, n);
  counterparts.insert(counterparts.begin(), Forward("mm", [=] { at::mm(dout, weight); }));
  return counterparts;
}

Counterparts LinearWeightsCounterparts(int64_t m, int64_t n, int64_t k) {
  const at::Tensor dout = Random({m, n}), x = Random({m, k}), dweight = Random({n, k}, at::kFloat);
  return {PartOf(Forward("mm", [=] { at::mm(dout.t(), x); })),
          Forward("mm-add", [=] { dweight.add_(at::mm(dout.t(), x)); })};
}

}  // namespace tandem::bench
