#include "common/types/xxh3.h"

#include <algorithm>

#include <fmt/format.h>
#include <xxhash.h>

#include "common/base/progress.h"

namespace tandem {
namespace {

constexpr size_t kPiece = size_t{16} << 20;

}  // namespace

std::string Xxh3Hash::Hex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::array<std::byte, 16> Xxh3Hash::Bytes() const {
  std::array<std::byte, 16> bytes;
  for (size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<std::byte>(high >> (56 - 8 * i));
    bytes[8 + i] = static_cast<std::byte>(low >> (56 - 8 * i));
  }
  return bytes;
}

Xxh3Hash HashXxh3(const void* data, size_t bytes) {
  if (bytes <= kPiece) {
    const XXH128_hash_t hash = XXH3_128bits(data, bytes);
    return {.low = hash.low64, .high = hash.high64};
  }
  Xxh3Stream stream;
  for (size_t at = 0; at < bytes; at += kPiece) {
    stream.Append(static_cast<const char*>(data) + at, std::min(kPiece, bytes - at));
    NoteProgress();
  }
  return stream.Finish();
}

Xxh3Stream::Xxh3Stream() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }

void Xxh3Stream::Append(const void* data, size_t bytes) {
  XXH3_128bits_update(state_.get(), data, bytes);
}

Xxh3Hash Xxh3Stream::Finish() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return {.low = hash.low64, .high = hash.high64};
}

void Xxh3Stream::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

}  // namespace tandem
