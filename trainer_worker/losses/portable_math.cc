#include "trainer_worker/losses/portable_math.h"

#include <cmath>

namespace tandem {
namespace {

// Zero where x is finite, but with the gradient of x.
at::Tensor GradientOf(const at::Tensor& x) { return x - x.detach(); }

template <typename Function>
at::Tensor InDouble(const at::Tensor& x, Function function) {
  const at::Tensor values = x.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  double* data = values.data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) data[i] = function(data[i]);
  return values.to(x.dtype());
}

}  // namespace

at::Tensor PortableExp(const at::Tensor& x) {
  return InDouble(x, [](double value) { return std::exp(value); }) * (1 + GradientOf(x));
}

at::Tensor PortableSigmoid(const at::Tensor& x) {
  const at::Tensor y = InDouble(x, [](double value) { return 1 / (1 + std::exp(-value)); });
  return y + y * (1 - y) * GradientOf(x);
}

at::Tensor PortableLog(const at::Tensor& x) {
  return InDouble(x, [](double value) { return std::log(value); }) + GradientOf(x) / x.detach();
}

at::Tensor FixedSum(const at::Tensor& x) {
  const at::Tensor values = x.detach().to(at::kDouble).contiguous();
  const double* data = values.data_ptr<double>();
  double sum = 0;
  for (int64_t i = 0; i < values.numel(); ++i) sum += data[i];
  return at::scalar_tensor(sum, values.options()).to(x.dtype()) + GradientOf(x).sum();
}

at::Tensor FixedRowSum(const at::Tensor& x, const at::Tensor& rows, int64_t num_rows) {
  const at::Tensor values = x.detach().to(at::kDouble).contiguous();
  const at::Tensor index = rows.contiguous();
  const double* data = values.data_ptr<double>();
  const int64_t* row = index.data_ptr<int64_t>();
  const at::Tensor sums = at::zeros({num_rows}, values.options());
  double* sum = sums.data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) sum[row[i]] += data[i];
  const at::Tensor zeros = at::zeros({num_rows}, x.options().requires_grad(false));
  return sums.to(x.dtype()) + zeros.index_add(0, index, GradientOf(x));
}

}  // namespace tandem
