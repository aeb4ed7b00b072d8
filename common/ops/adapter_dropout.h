// Dropout in front of adapters, in training passes alone (PEFT's lora_dropout; N. Srivastava et
// al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR 15, 2014; the
// elements that stay are scaled up, so that passes without it need no factor). Every module of a
// model drops elements of its own, also where several share an input.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "common/base/philox.h"

namespace tandem {

// What a pass drops: of a row with key r, before module m (LinearAdapter::Part), column k, where a
// random number of 16 bits for (r, m, k) is below `below`. No element depends on the rows around
// it.
struct AdapterDropout {
  static constexpr uint32_t kUnits = 65536;

  uint32_t below = 0;              // of kUnits
  const uint64_t* rows = nullptr;  // keys of the rows that a product has
  // What is kept counts so many times: 1 over the share that is kept, rounded once.
  float scale() const {
    return static_cast<float>(double{kUnits} / static_cast<double>(kUnits - below));
  }
};

// `share` in [0, 1) to the nearest whole unit, but never everything.
inline AdapterDropout MakeAdapterDropout(double share, const uint64_t* rows) {
  const auto units = static_cast<uint32_t>(std::lround(share * AdapterDropout::kUnits));
  return {units < AdapterDropout::kUnits ? units : AdapterDropout::kUnits - 1, rows};
}

// A key of 64 bits for (key, stream, index): Philox's first two words.
constexpr uint64_t DerivedKey(uint64_t key, uint64_t stream, uint64_t index) {
  const std::array<uint32_t, 4> words = RandomWords(key, stream, index);
  return uint64_t{words[1]} << 32 | words[0];
}

// Eight columns share the words of a counter, two a word, the lower half first.
constexpr uint32_t DropoutDraw(uint64_t row_key, int64_t module, int64_t col) {
  const auto column = static_cast<uint64_t>(col);
  const std::array<uint32_t, 4> words =
      RandomWords(row_key, static_cast<uint64_t>(module), column / 8);
  return words[column % 8 / 2] >> (column % 2 * 16) & 0xffff;
}

}  // namespace tandem
