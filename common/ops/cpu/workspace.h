// Scratch memory that is kept between calls, so that first touch is paid only once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace tandem {

class Workspace {
 public:
  // At least `count` elements, 64-byte aligned. Contents are lost when it grows.
  template <typename T>
  T* Get(int64_t count) {
    return reinterpret_cast<T*>(Bytes(count * static_cast<int64_t>(sizeof(T))));
  }
  std::byte* Bytes(int64_t bytes);
  int64_t capacity() const { return capacity_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  int64_t capacity_ = 0;
};

// Lays out parts of a buffer one after another, each 64-byte aligned. Without memory, it only
// counts bytes.
class ScratchLayout {
 public:
  explicit ScratchLayout(std::byte* memory) : memory_(memory) {}
  template <typename T>
  T* Take(int64_t count) {
    const int64_t at = bytes_;
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + at);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  int64_t bytes_ = 0;
};

}  // namespace tandem
