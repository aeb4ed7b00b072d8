#include "tests/support/golden_tensor.h"

#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace tandem::testing {

std::vector<int64_t> GoldenTensor::Ints() const {
  std::vector<int64_t> ints;
  ints.reserve(values.size());
  for (double v : values) ints.push_back(static_cast<int64_t>(v));
  return ints;
}

double ParseNumber(const Json& json) {
  if (json.is_boolean()) return json.get<bool>() ? 1.0 : 0.0;
  if (!json.is_string()) return json.get<double>();
  const std::string text = json.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error("no number: " + text);
}

bool IsTensor(const Json& json) {
  return json.is_object() && json.contains("dtype") && json.contains("data");
}

GoldenTensor ParseTensor(const Json& json) {
  GoldenTensor tensor;
  tensor.dtype = json.at("dtype").get<std::string>();
  tensor.shape = json.at("shape").get<std::vector<int64_t>>();
  const Json& data = json.at("data");
  if (data.is_array()) {
    tensor.values.reserve(data.size());
    for (const Json& v : data) tensor.values.push_back(ParseNumber(v));
  } else {
    tensor.values.push_back(ParseNumber(data));
  }
  size_t count = 1;
  for (int64_t d : tensor.shape) count *= static_cast<size_t>(d);
  if (count != tensor.values.size()) {
    throw std::runtime_error("golden tensor: shape and data disagree");
  }
  return tensor;
}

bool IsClose(double got, double want, double rtol, double atol) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= atol + rtol * std::abs(want);
}

std::string CompareValues(const std::vector<double>& got,
                          const std::vector<double>& want,
                          double rtol,
                          double atol) {
  std::ostringstream out;
  out.precision(9);
  if (got.size() != want.size()) {
    out << "got " << got.size() << " values, want " << want.size();
    return out.str();
  }
  size_t bad = 0, first = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (IsClose(got[i], want[i], rtol, atol)) continue;
    if (bad++ == 0) first = i;
  }
  if (bad == 0) return "";
  out << bad << " of " << got.size() << " values differ; first at " << first << ": got "
      << got[first] << ", want " << want[first];
  return out.str();
}

std::string CompareValues(const std::vector<float>& got,
                          const std::vector<double>& want,
                          double rtol,
                          double atol) {
  return CompareValues(std::vector<double>(got.begin(), got.end()), want, rtol, atol);
}

}  // namespace tandem::testing
