// The shared memory of the blocks that a thread of the host emulates at once.
//
// Each block's lies in a slot: bytes that nobody may touch, the dynamic part, more such bytes, a
// static array, such bytes again, and so on. Where kernels are compiled with checks of each access
// (watch.cc), one of those bytes is reported at once, by reads too; elsewhere a write to them shows
// when the block ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::emulator {

// Filled into shared memory before a block starts: floats and doubles are NaN, indices -1.
inline constexpr int kPoison = 0xff;
// What a kernel may have of it without asking for more; static arrays always.
inline constexpr int64_t kPlainSharedBytes = 48 << 10;

class SharedMemorySlots {
 public:
  // For `slots` blocks of a kernel that is not yet known to have static arrays.
  void BeginLaunch(int slots, int64_t dynamic_bytes);
  void BeginBlock(int slot);
  unsigned char* Dynamic(int slot) { return At(slot) + kGuardBytes; }
  // The array that `site`, a place in the kernel's source, declares; made when a block first comes
  // there.
  void* Static(int slot, const void* site, const char* name, size_t bytes);
  // Of all static arrays so far.
  int64_t static_bytes() const;
  int64_t dynamic_bytes() const { return dynamic_bytes_; }
  // What was written beyond an array of the slot's, in words; "" if nothing was.
  std::string Overrun(int slot) const;

  const unsigned char* begin() const { return memory_.data() + Misaligned(); }
  size_t slot_bytes() const { return slot_bytes_; }
  int slots() const { return slots_; }
  // Whether all bytes of an access at an offset of a slot lie in one array.
  bool IsInArray(size_t offset, size_t bytes) const;
  // An offset in a slot, as "byte 12 of `sums`".
  std::string Describe(size_t offset) const;

 private:
  static constexpr size_t kAlignment = 128, kGuardBytes = 256;
  static constexpr int kGuard = 0xa5;

  struct Array {
    const void* site;
    const char* name;
    size_t begin, bytes;
  };
  size_t Misaligned() const {
    return -reinterpret_cast<uintptr_t>(memory_.data()) & (kAlignment - 1);
  }
  unsigned char* At(int slot) {
    return memory_.data() + Misaligned() + static_cast<size_t>(slot) * slot_bytes_;
  }
  // Where the bytes behind the array end.
  static size_t EndOf(const Array& array);

  std::vector<unsigned char> memory_;
  std::vector<Array> arrays_;  // the dynamic part first
  size_t slot_bytes_ = 0;
  int slots_ = 0;
  int64_t dynamic_bytes_ = 0;
};

}  // namespace tandem::emulator
