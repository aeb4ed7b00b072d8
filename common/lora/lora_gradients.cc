#include "common/lora/lora_gradients.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kTileColumns = 1 << 10;  // of dA and dW: both stay in the nearest caches

float Dot(const float* x, const float* y, int64_t count) {
  float lanes[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[j + lane] * y[j + lane];
  }
  for (int64_t lane = 0; j < count; ++j, ++lane) lanes[lane] += x[j] * y[j];
  float sum = lanes[0];
  for (int64_t lane = 1; lane < kLanes; ++lane) sum += lanes[lane];
  return sum;
}

}  // namespace

void AddRowsOfLoraB(const LoraGradientBlock& m, int64_t first, int64_t last) {
  const auto scaling = static_cast<float>(m.scaling);
  for (int64_t row = first; row < last; ++row) {
    for (int64_t k = 0; k < m.rank; ++k) {
      m.db[row * m.rank + k] += scaling * Dot(m.dw + row * m.in, m.a + k * m.in, m.in);
    }
  }
}

void AddColumnsOfLoraA(const LoraGradientBlock& m, int64_t first, int64_t last) {
  const auto scaling = static_cast<float>(m.scaling);
  for (int64_t begin = first; begin < last; begin += kTileColumns) {
    const int64_t count = std::min(kTileColumns, last - begin);
    for (int64_t row = 0; row < m.rows; ++row) {
      const float* __restrict dw = m.dw + row * m.in + begin;
      for (int64_t k = 0; k < m.rank; ++k) {
        const float factor = scaling * m.b[row * m.rank + k];
        float* __restrict da = m.da + k * m.in + begin;
        for (int64_t j = 0; j < count; ++j) da[j] += factor * dw[j];
      }
    }
  }
}

void AddLoraGradients(const LoraGradientBlock& block) {
  AddRowsOfLoraB(block, 0, block.rows);
  AddColumnsOfLoraA(block, 0, block.in);
}

}  // namespace tandem
