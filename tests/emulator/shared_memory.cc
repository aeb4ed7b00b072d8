#include "tests/emulator/shared_memory.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "common/base/check.h"

namespace tandem::emulator {
namespace {

constexpr size_t kMostArrays = 32;  // of a kernel

}  // namespace

size_t SharedMemorySlots::EndOf(const Array& array) {
  const size_t end = array.begin + array.bytes + kGuardBytes;
  return (end + kAlignment - 1) / kAlignment * kAlignment;
}

void SharedMemorySlots::BeginLaunch(int slots, int64_t dynamic_bytes) {
  slots_ = slots;
  dynamic_bytes_ = dynamic_bytes;
  arrays_.assign(1, {nullptr, "SharedMemory()", kGuardBytes, static_cast<size_t>(dynamic_bytes)});
  slot_bytes_ = EndOf(arrays_[0]) + static_cast<size_t>(kPlainSharedBytes) +
                kMostArrays * (kGuardBytes + kAlignment);
  memory_.resize(static_cast<size_t>(slots) * slot_bytes_ + kAlignment);
  std::memset(memory_.data(), kGuard, memory_.size());
}

void SharedMemorySlots::BeginBlock(int slot) {
  for (const Array& array : arrays_) std::memset(At(slot) + array.begin, kPoison, array.bytes);
}

void* SharedMemorySlots::Static(int slot, const void* site, const char* name, size_t bytes) {
  for (const Array& array : arrays_) {
    if (array.site == site) return At(slot) + array.begin;
  }
  TANDEM_CHECK(arrays_.size() < kMostArrays, "a kernel has too many static arrays");
  TANDEM_CHECK(static_bytes() + static_cast<int64_t>(bytes) <= kPlainSharedBytes,
               fmt::format("`{}` makes a kernel's static arrays larger than {} bytes", name,
                           kPlainSharedBytes));
  arrays_.push_back({site, name, EndOf(arrays_.back()), bytes});
  for (int each = 0; each < slots_; ++each) {
    std::memset(At(each) + arrays_.back().begin, kPoison, bytes);
  }
  return At(slot) + arrays_.back().begin;
}

int64_t SharedMemorySlots::static_bytes() const {
  int64_t bytes = 0;
  for (size_t i = 1; i < arrays_.size(); ++i) bytes += static_cast<int64_t>(arrays_[i].bytes);
  return bytes;
}

std::string SharedMemorySlots::Overrun(int slot) const {
  const unsigned char* const memory = begin() + static_cast<size_t>(slot) * slot_bytes_;
  size_t from = 0;
  for (const Array& array : arrays_) {
    for (const auto& [first, last] :
         {std::pair(from, array.begin), std::pair(array.begin + array.bytes, EndOf(array))}) {
      const auto* const found = std::find_if(memory + first, memory + last,
                                             [](unsigned char byte) { return byte != kGuard; });
      if (found != memory + last) return Describe(static_cast<size_t>(found - memory));
    }
    from = EndOf(array);
  }
  return "";
}

bool SharedMemorySlots::IsInArray(size_t offset, size_t bytes) const {
  return std::any_of(arrays_.begin(), arrays_.end(), [&](const Array& array) {
    return offset >= array.begin && offset + bytes <= array.begin + array.bytes;
  });
}

std::string SharedMemorySlots::Describe(size_t offset) const {
  // Between two arrays it belongs to the nearer one.
  const Array* nearest = nullptr;
  size_t least = slot_bytes_;
  for (const Array& array : arrays_) {
    const size_t end = array.begin + array.bytes;
    const size_t away = offset < array.begin ? array.begin - offset
                        : offset < end       ? 0
                                             : offset - end + 1;
    if (away < least) nearest = &array, least = away;
  }
  return fmt::format("byte {} of `{}`, which has {} bytes",
                     static_cast<int64_t>(offset) - static_cast<int64_t>(nearest->begin),
                     nearest->name, nearest->bytes);
}

}  // namespace tandem::emulator
