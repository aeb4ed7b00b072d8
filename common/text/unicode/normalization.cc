#include "common/text/unicode/normalization.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <unordered_map>

#include "common/text/unicode/properties.h"
#include "common/text/unicode/utf8.h"

namespace tandem {
namespace {

struct Decomposition {
  uint32_t code_point, first, second;  // second 0: a singleton
  uint8_t composes;                    // first + second compose back (no exclusion)
};

#include "common/text/unicode/nfc_tables.inc"

// Hangul syllables are computed (chapter 3.12 of the standard).
constexpr char32_t kSBase = 0xAC00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11A7;
constexpr char32_t kLCount = 19, kVCount = 21, kTCount = 28, kSCount = kLCount * kVCount * kTCount;

int CombiningClass(char32_t c) {
  if (c < 0x300) return 0;
  return FindInRuns(kCombiningClasses, c).value_or(0);
}

const Decomposition* FindDecomposition(char32_t c) {
  const auto it =
      std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), c,
                       [](const Decomposition& d, char32_t cp) { return d.code_point < cp; });
  return it != std::end(kDecompositions) && it->code_point == c ? &*it : nullptr;
}

void Decompose(char32_t c, std::u32string& out) {
  if (c >= kSBase && c < kSBase + kSCount) {
    const char32_t index = c - kSBase;
    out += kLBase + index / (kVCount * kTCount);
    out += kVBase + index % (kVCount * kTCount) / kTCount;
    if (index % kTCount != 0) out += kTBase + index % kTCount;
    return;
  }
  const Decomposition* d = c < 0xC0 ? nullptr : FindDecomposition(c);
  if (d == nullptr) {
    out += c;
    return;
  }
  Decompose(d->first, out);
  if (d->second != 0) Decompose(d->second, out);
}

// 0 where the pair does not compose.
char32_t Compose(char32_t a, char32_t b) {
  if (a >= kLBase && a < kLBase + kLCount && b >= kVBase && b < kVBase + kVCount) {
    return kSBase + ((a - kLBase) * kVCount + (b - kVBase)) * kTCount;
  }
  if (a >= kSBase && a < kSBase + kSCount && (a - kSBase) % kTCount == 0 && b > kTBase &&
      b < kTBase + kTCount) {
    return a + (b - kTBase);
  }
  static const auto* const kPairs = [] {
    auto* pairs = new std::unordered_map<uint64_t, char32_t>;
    for (const Decomposition& d : kDecompositions) {
      if (d.composes) pairs->emplace((uint64_t{d.first} << 32) | d.second, d.code_point);
    }
    return pairs;
  }();
  const auto it = kPairs->find((uint64_t{a} << 32) | b);
  return it == kPairs->end() ? 0 : it->second;
}

// Canonical ordering: stable sort by combining class of every run of non-starters.
void Reorder(std::u32string& text) {
  for (size_t i = 0; i < text.size();) {
    if (CombiningClass(text[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && CombiningClass(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + i, text.begin() + end,
                     [](char32_t a, char32_t b) { return CombiningClass(a) < CombiningClass(b); });
    i = end;
  }
}

std::u32string ComposeAll(const std::u32string& text) {
  std::u32string out;
  size_t starter = std::u32string::npos;
  int last_class = 0;  // of the last character kept after the starter
  for (char32_t c : text) {
    const int combining = CombiningClass(c);
    const bool adjacent = starter != std::u32string::npos && starter + 1 == out.size();
    const bool blocked = !adjacent && last_class >= combining;
    if (starter != std::u32string::npos && !blocked) {
      if (const char32_t composed = Compose(out[starter], c); composed != 0) {
        out[starter] = composed;
        continue;
      }
    }
    if (combining == 0) starter = out.size();
    last_class = combining;
    out += c;
  }
  return out;
}

}  // namespace

std::string NormalizeNfc(std::string_view text) {
  const bool ascii =
      std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  if (ascii) return std::string(text);
  std::u32string decomposed;
  decomposed.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) Decompose(NextCodePoint(text, pos), decomposed);
  Reorder(decomposed);
  return ToUtf8(ComposeAll(decomposed));
}

}  // namespace tandem
