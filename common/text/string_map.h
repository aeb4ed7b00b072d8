// A hash map with string keys that can be looked up by string_view, without a temporary string.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tandem {

struct StringViewHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

template <typename T>
using StringMap = std::unordered_map<std::string, T, StringViewHash, std::equal_to<>>;

}  // namespace tandem
