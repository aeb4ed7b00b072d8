// Tells calls apart: which collective, and its sizes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem {

inline uint64_t CallSignature(std::string_view collective, const std::vector<int64_t>& sizes) {
  uint64_t hash = 0;
  for (const char c : collective) hash = (hash ^ static_cast<uint64_t>(c)) * 0x9E3779B97F4A7C15u;
  for (const int64_t size : sizes) {
    hash = (hash ^ static_cast<uint64_t>(size)) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace tandem
