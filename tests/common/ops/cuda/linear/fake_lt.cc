#include "tests/common/ops/cuda/linear/fake_lt.h"

#include <algorithm>

#include "common/types/tensor_view.h"

namespace tandem::testing {
namespace {

float At(const void* data, int64_t index) {
  return FromBf16(static_cast<const uint16_t*>(data)[index]);
}

// One element, k ascending or descending.
float Element(const Gemm& gemm, int64_t row, int64_t col, bool backwards, int64_t terms) {
  float sum = 0;
  for (int64_t i = 0; i < terms; ++i) {
    const int64_t k = backwards ? terms - 1 - i : i;
    const int64_t at_a =
        gemm.kind == GemmKind::kWeights ? k * gemm.a_stride + row : row * gemm.a_stride + k;
    const int64_t at_b =
        gemm.kind == GemmKind::kForward ? col * gemm.b_stride + k : k * gemm.b_stride + col;
    sum += At(gemm.a, at_a) * At(gemm.b, at_b);
  }
  return sum + (gemm.bias == nullptr ? 0.0f : At(gemm.bias, col));
}

bool IsBackwards(const Gemm& gemm, int64_t row, LtFault fault) {
  switch (fault) {
    case LtFault::kOtherOrder:
      return true;
    case LtFault::kByRows:
      return gemm.m < 20;
    case LtFault::kByPlace:
      return row % 8 == 5;
    case LtFault::kByNeighbour:
      return row > 0 && At(gemm.a, (row - 1) * gemm.a_stride) < 0;
    default:
      return false;
  }
}

}  // namespace

LtAlgorithm FakeLt::Algorithm(LtFault fault, int number) {
  LtAlgorithm algorithm;
  algorithm.id = 100 * number + static_cast<int>(fault);
  algorithm.opaque[0] = static_cast<uint64_t>(algorithm.id);
  return algorithm;
}

void FakeLt::Offer(int64_t rows, std::vector<LtAlgorithm> algorithms) {
  offers_[rows] = std::move(algorithms);
}

absl::StatusOr<std::vector<LtAlgorithm>> FakeLt::Candidates(const Gemm& gemm, int count) {
  rows_asked.push_back(gemm.m);
  const auto found = offers_.lower_bound(gemm.m);
  if (found == offers_.end()) return std::vector<LtAlgorithm>();
  std::vector<LtAlgorithm> offered = found->second;
  offered.resize(std::min(offered.size(), static_cast<size_t>(count)));
  return offered;
}

absl::Status FakeLt::Run(const Gemm& gemm, const LtAlgorithm& algorithm, CudaStream /*stream*/) {
  ids_run.push_back(algorithm.id);
  rows_run.push_back(gemm.m);
  const auto fault = static_cast<LtFault>(algorithm.id % 100);
  if (fault == LtFault::kBreaks) return absl::InternalError("the device is lost");
  if (fault == LtFault::kRefusesFew && gemm.m < 20) return absl::InvalidArgumentError("too few");
  const int64_t terms = fault == LtFault::kDropsTail ? gemm.k - 8 : gemm.k;
  const int64_t rows = fault == LtFault::kLeavesOut && gemm.m / 16 % 2 == 1 ? gemm.m - 1 : gemm.m;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < gemm.n; ++col) {
      const float value = Element(gemm, row, col, IsBackwards(gemm, row, fault), terms);
      const int64_t at = row * gemm.c_stride + col;
      float* const floats = static_cast<float*>(gemm.c);
      if (gemm.output == GemmOutput::kBf16) static_cast<uint16_t*>(gemm.c)[at] = ToBf16(value);
      if (gemm.output == GemmOutput::kFloat) floats[at] = value;
      if (gemm.output == GemmOutput::kFloatAdd) floats[at] += value;
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::testing
