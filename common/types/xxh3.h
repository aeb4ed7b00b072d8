// The 128-bit XXH3 of bytes, and its one spelling in files and messages: finds accidents, not
// forgeries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct XXH3_state_s;

namespace tandem {

struct Xxh3Hash {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Xxh3Hash&, const Xxh3Hash&) = default;
  std::string Hex() const;  // 32 digits
  // Big endian: the bytes are those that the digits of Hex() spell.
  std::array<std::byte, 16> Bytes() const;
};

// Notes the calling thread's progress (common/base/progress.h) while it goes over many bytes, which
// may be those of a mapped file on a slow disk.
Xxh3Hash HashXxh3(const void* data, size_t bytes);

// Hashes bytes that are appended in pieces of any size. Not thread-safe.
class Xxh3Stream {
 public:
  Xxh3Stream();
  void Append(const void* data, size_t bytes);
  // Of everything appended so far.
  Xxh3Hash Finish() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace tandem
