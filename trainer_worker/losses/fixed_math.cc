#include "trainer_worker/losses/fixed_math.h"

#include <cmath>

namespace tandem {
namespace {

// 0 where x is finite, with the gradient of x.
at::Tensor GradientOf(const at::Tensor& x) { return x - x.detach(); }

}  // namespace

at::Tensor FixedExp(const at::Tensor& x) {
  const at::Tensor values = x.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  double* data = values.data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) data[i] = std::exp(data[i]);
  return values.to(x.dtype()) * (1 + GradientOf(x));
}

at::Tensor FixedSum(const at::Tensor& x) {
  const at::Tensor values = x.detach().to(at::kDouble).contiguous();
  const double* data = values.data_ptr<double>();
  double sum = 0;
  for (int64_t i = 0; i < values.numel(); ++i) sum += data[i];
  return at::scalar_tensor(sum, values.options()).to(x.dtype()) + GradientOf(x).sum();
}

}  // namespace tandem
