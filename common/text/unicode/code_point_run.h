// Run-length tables of code point properties, as generate_tables.py writes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>

namespace tandem {

// first, first + step, ..., last all have `value`. Tables are sorted and runs do not overlap.
struct CodePointRun {
  uint32_t first, last;
  uint8_t step;
  int32_t value;
};

template <size_t kCount>
std::optional<int32_t> FindInRuns(const CodePointRun (&runs)[kCount], char32_t code_point) {
  auto it = std::upper_bound(std::begin(runs), std::end(runs), code_point,
                             [](char32_t cp, const CodePointRun& run) { return cp < run.first; });
  if (it == std::begin(runs)) return std::nullopt;
  --it;
  if (code_point <= it->last && (code_point - it->first) % it->step == 0) return it->value;
  return std::nullopt;
}

}  // namespace tandem
