// Memory of a group for chunks that are received; it is kept between collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tandem {

class Staging {
 public:
  // `chunk` is a multiple of 64.
  explicit Staging(int64_t chunk) : chunk_(chunk) {}
  int64_t chunk() const { return chunk_; }
  // At least `bytes`, uninitialised, aligned for any value; what was returned before is void.
  std::byte* Reserve(int64_t bytes) {
    if (bytes > bytes_) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
      bytes_ = bytes;
    }
    return memory_.get();
  }

 private:
  const int64_t chunk_;
  int64_t bytes_ = 0;
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace tandem
