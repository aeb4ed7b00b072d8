// The LM head: log-probs, their gradients, sampling.
#include "tests/bench/ops/counterparts/operands.h"

namespace tandem::bench {
namespace {

struct HeadOperands {
  HeadOperands(int64_t rows, int64_t vocab, int64_t cols)
      : hidden(Random({rows, cols})),
        head(Random({vocab, cols})),
        targets(RandomIds(rows, vocab).unsqueeze(1)) {}
  at::Tensor hidden, head, targets;
};

using LogProbs = at::Tensor (*)(const HeadOperands&);

at::Tensor Bf16LogProbs(const HeadOperands& o) {
  return at::log_softmax(at::linear(o.hidden, o.head), -1).gather(1, o.targets);
}
at::Tensor Fp32LogProbs(const HeadOperands& o) {
  return at::log_softmax(at::linear(o.hidden, o.head).to(at::kFloat), -1).gather(1, o.targets);
}
struct Way {
  const char* name;
  LogProbs log_probs;
};
constexpr Way kWays[] = {{"bf16", Bf16LogProbs}, {"fp32", Fp32LogProbs}};

HeadOperands Leaves(int64_t rows, int64_t vocab, int64_t cols) {
  HeadOperands o(rows, vocab, cols);
  Leaf(o.hidden);
  Leaf(o.head);
  return o;
}

}  // namespace

Counterparts LogProbCounterparts(int64_t rows, int64_t vocab, int64_t cols) {
  const HeadOperands o(rows, vocab, cols);
  Counterparts counterparts;
  for (const Way way : kWays) {
    counterparts.push_back(Forward(way.name, [=] { way.log_probs(o); }));
  }
  return counterparts;
}

Counterparts LogProbBackwardCounterparts(int64_t rows, int64_t vocab, int64_t cols) {
  const HeadOperands o = Leaves(rows, vocab, cols);
  Counterparts counterparts;
  for (const Way way : kWays) {
    counterparts.push_back(Backward(way.name, way.log_probs(o), {o.hidden, o.head}));
  }
  return counterparts;
}

Counterparts LogProbTrainingCounterparts(int64_t rows, int64_t vocab, int64_t cols) {
  const HeadOperands o = Leaves(rows, vocab, cols);
  const at::Tensor dout = Random({rows, 1}, at::kFloat);
  Counterparts counterparts;
  for (const Way way : kWays) {
    counterparts.push_back(
        {way.name, [=] {
           const at::Tensor out = way.log_probs(o);
           torch::autograd::grad({out}, {o.hidden, o.head}, {dout.to(out.scalar_type())});
         }});
  }
  return counterparts;
}

Counterparts SampleCounterparts(int64_t rows, int64_t vocab, int64_t cols) {
  const HeadOperands o(rows, vocab, cols);
  const auto draw = [=](at::ScalarType type) {
    at::multinomial(at::softmax(at::linear(o.hidden, o.head).to(type), -1), 1);
  };
  return {Forward("bf16", [=] { draw(at::kBFloat16); }),
          Forward("fp32", [=] { draw(at::kFloat); })};
}

}  // namespace tandem::bench
