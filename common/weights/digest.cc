#include "common/weights/digest.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <emmintrin.h>
#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/ops/packed_weight.h"

namespace tandem {
namespace {

using Uint128 = unsigned __int128;

// The fractional parts of the square roots of 2, 3, 5, 7, 11, 13, 17, 19, 23, 29 (all odd).
constexpr uint64_t kKeys[10] = {0x6A09E667F3BCC909u, 0xBB67AE8584CAA73Bu, 0x3C6EF372FE94F82Bu,
                                0xA54FF53A5F1D36F1u, 0x510E527FADE682D1u, 0x9B05688C2B3E6C1Fu,
                                0x1F83D9ABFB41BD6Bu, 0x5BE0CD19137E2179u, 0xCBBB9D5DC1059ED9u,
                                0x629A292A367CD507u};
constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;

inline uint64_t Word(const unsigned char* at) {
  uint64_t word;
  memcpy(&word, at, sizeof(word));
  return word;
}

// Bytes that are asked for ahead of the block at hand. The mix fills the processor's window of
// instructions, so that it sees too few loads at once to hide the latency of memory: 4.3 GB/s
// without, 11.8 with (one core of Granite Rapids, 256 MiB). From a cache it runs at 14 GB/s, and no
// faster with eight blocks in AVX-512 registers, which lack the 128-bit products.
constexpr int64_t kPrefetchBytes = 2048;

// One block: four keyed 128-bit products (as NH in UMAC: Black et al., CRYPTO'99), whose sum a
// fifth product mixes down, because sums of plain products would cancel between blocks.
inline Digest MixBlock(const unsigned char* block, uint64_t key) {
  Uint128 sum = 0;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const uint64_t left = Word(block + 16 * i) ^ (kKeys[2 * i] + key);
    const uint64_t right = Word(block + 16 * i + 8) ^ (kKeys[2 * i + 1] - key);
    sum += static_cast<Uint128>(left) * right;
  }
  const uint64_t low = static_cast<uint64_t>(sum);
  const uint64_t high = static_cast<uint64_t>(sum >> 64);
  const Uint128 mixed = static_cast<Uint128>(low ^ (kKeys[8] + key)) * (high ^ (kKeys[9] - key));
  Digest out;
  out.low = (static_cast<uint64_t>(mixed) ^ (high << 32 | high >> 32)) * kStep;
  out.high = static_cast<uint64_t>(mixed >> 64) ^ (low * kKeys[8]);
  return out;
}

inline void Accumulate(Digest* sum, const Digest& block) {
  const Uint128 total = ((static_cast<Uint128>(sum->high) << 64) | sum->low) +
                        ((static_cast<Uint128>(block.high) << 64) | block.low);
  sum->low = static_cast<uint64_t>(total);
  sum->high = static_cast<uint64_t>(total >> 64);
}

inline uint64_t BlockKey(int64_t index) { return (static_cast<uint64_t>(index) + 1) * kStep; }

}  // namespace

std::string Digest::Hex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::string Digest::Bytes() const {
  std::string bytes(16, '\0');
  memcpy(bytes.data(), &low, 8);
  memcpy(bytes.data() + 8, &high, 8);
  return bytes;
}

absl::StatusOr<Digest> Digest::FromBytes(const std::string& bytes) {
  if (bytes.size() != 16) return InvalidArgument("a digest has 16 bytes, not {}", bytes.size());
  Digest digest;
  memcpy(&digest.low, bytes.data(), 8);
  memcpy(&digest.high, bytes.data() + 8, 8);
  return digest;
}

void DigestBuilder::Add(int64_t offset, const void* data, int64_t bytes) {
  TANDEM_CHECK(offset % kDigestBlockBytes == 0, "a digest piece starts inside a block");
  const auto* at = static_cast<const unsigned char*>(data);
  uint64_t key = BlockKey(offset / kDigestBlockBytes);
  Digest sum = sum_;
  for (; bytes >= kDigestBlockBytes; bytes -= kDigestBlockBytes) {
    _mm_prefetch(reinterpret_cast<const char*>(at) + kPrefetchBytes, _MM_HINT_T0);
    Accumulate(&sum, MixBlock(at, key));
    key += kStep;
    at += kDigestBlockBytes;
  }
  if (bytes > 0) {
    unsigned char tail[kDigestBlockBytes] = {};
    memcpy(tail, at, bytes);
    Accumulate(&sum, MixBlock(tail, key));
  }
  sum_ = sum;
}

void DigestBuilder::Merge(const DigestBuilder& other) { Accumulate(&sum_, other.sum_); }

Digest DigestBuilder::Finish(int64_t tensor_bytes) const {
  // The length is a block of its own, under a key that no block of the tensor has.
  unsigned char block[kDigestBlockBytes] = {};
  memcpy(block, &tensor_bytes, sizeof(tensor_bytes));
  Digest digest = sum_;
  Accumulate(&digest, MixBlock(block, BlockKey(-2)));
  return digest;
}

void SequentialDigest::Append(const void* data, int64_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  const int64_t begun = offset_ % kDigestBlockBytes;
  if (begun > 0) {
    const int64_t taken = std::min(bytes, kDigestBlockBytes - begun);
    memcpy(begun_ + begun, at, taken);
    at += taken;
    bytes -= taken;
    offset_ += taken;
    if (begun + taken < kDigestBlockBytes) return;
    builder_.Add(offset_ - kDigestBlockBytes, begun_, kDigestBlockBytes);
  }
  const int64_t whole = bytes / kDigestBlockBytes * kDigestBlockBytes;
  builder_.Add(offset_, at, whole);
  if (bytes > whole) memcpy(begun_, at + whole, bytes - whole);
  offset_ += bytes;
}

Digest SequentialDigest::Finish() {
  const int64_t begun = offset_ % kDigestBlockBytes;
  if (begun > 0) builder_.Add(offset_ - begun, begun_, begun);
  return builder_.Finish(offset_);
}

Digest DigestOf(const void* data, int64_t bytes) {
  DigestBuilder builder;
  builder.Add(0, data, bytes);
  return builder.Finish(bytes);
}

int64_t DigestPieceRows(int64_t row_bytes, int64_t target_bytes) {
  const int64_t unit =
      std::max(kPackedPanelRows, kDigestBlockBytes / std::gcd(kDigestBlockBytes, row_bytes));
  return std::max<int64_t>(1, target_bytes / (unit * std::max<int64_t>(1, row_bytes))) * unit;
}

}  // namespace tandem
