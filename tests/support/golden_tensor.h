// Tensors of golden files: {"dtype", "shape", "data"}, row-major, non-finite numbers as strings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/golden.h"

namespace tandem::testing {

struct GoldenTensor {
  std::string dtype;           // float32, bfloat16, float64, int64, bool
  std::vector<int64_t> shape;  // [] for a scalar
  std::vector<double> values;  // bool as 0/1

  std::vector<float> Floats() const { return {values.begin(), values.end()}; }
  std::vector<int64_t> Ints() const;
};

// A number, or "nan", "inf", "-inf".
double ParseNumber(const Json& json);

bool IsTensor(const Json& json);

// Throws std::runtime_error when shape and data disagree.
GoldenTensor ParseTensor(const Json& json);

// abs(got - want) <= atol + rtol * abs(want); NaN matches NaN, infinities match by sign.
bool IsClose(double got, double want, double rtol, double atol);

// "" when all elements are close; else the count of bad ones and the first of them.
std::string CompareValues(const std::vector<double>& got,
                          const std::vector<double>& want,
                          double rtol,
                          double atol);
std::string CompareValues(const std::vector<float>& got,
                          const std::vector<double>& want,
                          double rtol,
                          double atol);

}  // namespace tandem::testing
