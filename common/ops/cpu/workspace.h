// Scratch memory that is kept between calls, so that no op pays for first touch twice.
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

}  // namespace tandem
