#include "trainer_worker/losses/portable_math.h"

#include <cmath>
#include <cstdint>

namespace tandem {
namespace {

// 0 where x is finite, with the gradient of x.
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

namespace {

constexpr int kBinBits = 24;
// Below the lowest bit that frexp gives of a float: 2^-172, of the smallest subnormal.
constexpr int kLowest = -192;

}  // namespace

void ExactSum::Add(float value) {
  int exponent = 0;
  const float fraction = std::frexp(std::fabs(value), &exponent);
  const auto digits = static_cast<uint64_t>(std::ldexp(fraction, kBinBits));
  if (digits == 0) return;
  const int position = exponent - kBinBits - kLowest;
  const uint64_t shifted = digits << (position % kBinBits);
  const auto bin = static_cast<size_t>(position / kBinBits);
  const double sign = std::signbit(value) ? -1 : 1;
  bins_[bin] += sign * static_cast<double>(shifted & ((uint64_t{1} << kBinBits) - 1));
  bins_[bin + 1] += sign * static_cast<double>(shifted >> kBinBits);
}

double ExactSum::Value() const {
  double sum = 0;
  for (int bin = static_cast<int>(bins_.size()) - 1; bin >= 0; --bin) {
    sum += std::ldexp(bins_[static_cast<size_t>(bin)], bin * kBinBits + kLowest);
  }
  return sum;
}

}  // namespace tandem
