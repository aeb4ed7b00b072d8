#include "tests/gpu/model_bench/random_weights.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/philox.h"
#include "common/base/status.h"

namespace tandem::testing {
namespace {

constexpr int64_t kMostDrawn = int64_t{4} << 20;
constexpr double kDeviation = 0.02;
constexpr uint64_t kSeed = 7;

// Box and Muller.
float Normal(uint64_t index) {
  const auto words = RandomWords(kSeed, 0, index);
  const double u = (words[0] + 0.5) * 0x1p-32, v = (words[1] + 0.5) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
}

absl::Status CopyRounded(Device* device, void* to, const std::vector<float>& values) {
  std::vector<Bf16> rounded;
  for (const float value : values) rounded.push_back(ToBf16(value));
  device->Copy(to, rounded.data(), std::ssize(rounded) * static_cast<int64_t>(sizeof(Bf16)));
  return device->Synchronize();
}

}  // namespace

bool IsNorm(const TensorPlace& place) { return place.name.find("norm") != std::string::npos; }

absl::StatusOr<std::unique_ptr<RandomNumbers>> RandomNumbers::Create(Device* device,
                                                                     const WeightLayout& layout,
                                                                     DType dtype) {
  int64_t largest = 0, longest_norm = 0;
  for (const TensorPlace& place : layout.places()) {
    int64_t& most = IsNorm(place) ? longest_norm : largest;
    most = std::max(most, place.rows() * place.cols());
  }
  std::unique_ptr<RandomNumbers> numbers(new RandomNumbers);
  numbers->drawn_ = std::min(kMostDrawn, 2 * largest);
  numbers->element_bytes_ = static_cast<int64_t>(DTypeBytes(dtype));
  std::vector<float> values(static_cast<size_t>(numbers->drawn_ + longest_norm), 1.0f);
  for (int64_t i = 0; i < numbers->drawn_; ++i) {
    values[static_cast<size_t>(i)] =
        static_cast<float>(kDeviation) * Normal(static_cast<uint64_t>(i));
  }
  const int64_t bytes = std::ssize(values) * numbers->element_bytes_;
  TANDEM_ASSIGN_OR_RETURN(numbers->region_, device->Reserve("random numbers", bytes, nullptr));
  TANDEM_RETURN_IF_ERROR(numbers->region_->Map());
  if (dtype == DType::kBFloat16) {
    TANDEM_RETURN_IF_ERROR(CopyRounded(device, numbers->region_->data(), values));
  } else {
    device->Copy(numbers->region_->data(), values.data(), bytes);
    TANDEM_RETURN_IF_ERROR(device->Synchronize());
  }
  return numbers;
}

const std::byte* RandomNumbers::Next(int64_t elements) {
  next_ = (next_ + 4099) % (drawn_ - elements + 1);
  return region_->data() + next_ * element_bytes_;
}

absl::Status FillStorage(Device* device, StorageOps& ops) {
  TANDEM_ASSIGN_OR_RETURN(const auto numbers,
                          RandomNumbers::Create(device, ops.layout(), ops.layout().dtype()));
  for (const TensorPlace& place : ops.layout().places()) {
    std::vector<DenseRows> pieces;
    const int64_t most = IsNorm(place) ? place.rows() : numbers->most() / place.cols();
    for (int64_t row = 0; row < place.rows(); row += most) {
      const int64_t rows = std::min(most, place.rows() - row);
      const std::byte* const from =
          IsNorm(place) ? numbers->Ones() : numbers->Next(rows * place.cols());
      pieces.push_back({&place, row, rows, from});
    }
    TANDEM_RETURN_IF_ERROR(ops.StoreRows(pieces, Location::kDevice));
  }
  return device->Synchronize();
}

}  // namespace tandem::testing
