// Dropout before adapters, in training passes only (PEFT's lora_dropout; N. Srivastava et al.,
// "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR 15, 2014). Kept
// elements are scaled up, so that passes without dropout need no factor. Every module of a model
// drops its own elements, even if several modules share an input.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "common/base/philox.h"

namespace tandem {

// What a pass drops: element k of a row with key r, before module m (LinearAdapter::Part), if a
// random 16-bit number for (r, m, k) is less than `below`. No element depends on the rows around
// it.
struct AdapterDropout {
  static constexpr uint32_t kUnits = 65536;

  uint32_t below = 0;              // in units of 1 / kUnits
  const uint64_t* rows = nullptr;  // keys of a product's rows
  // The factor of kept elements: 1 / (fraction kept), rounded once.
  float scale() const {
    return static_cast<float>(double{kUnits} / static_cast<double>(kUnits - below));
  }
};

// Rounds `share` in [0, 1) to the nearest unit, but never drops everything.
inline AdapterDropout MakeAdapterDropout(double share, const uint64_t* rows) {
  const auto units = static_cast<uint32_t>(std::lround(share * AdapterDropout::kUnits));
  return {units < AdapterDropout::kUnits ? units : AdapterDropout::kUnits - 1, rows};
}

// A 64-bit key for (key, stream, index): the first two words of Philox.
constexpr uint64_t DerivedKey(uint64_t key, uint64_t stream, uint64_t index) {
  const std::array<uint32_t, 4> words = RandomWords(key, stream, index);
  return uint64_t{words[1]} << 32 | words[0];
}

// Eight columns share the four words of a counter, two per word, the lower half first.
constexpr uint32_t DropoutDraw(uint64_t row_key, int64_t module, int64_t col) {
  const auto column = static_cast<uint64_t>(col);
  const std::array<uint32_t, 4> words =
      RandomWords(row_key, static_cast<uint64_t>(module), column / 8);
  return words[column % 8 / 2] >> (column % 2 * 16) & 0xffff;
}

}  // namespace tandem
