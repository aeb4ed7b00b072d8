// The digest of a tensor's bytes, equal however they are cut, stored or visited: the 128-bit sum of
// a strong mix of every 64-byte block, keyed by the block's logical offset (docs/weights.md). The
// last block is padded with zeros, the length is mixed in. It finds accidents, not forgeries.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Digest& a, const Digest& b) {
    return a.low == b.low && a.high == b.high;
  }
  std::string Hex() const;    // 32 digits
  std::string Bytes() const;  // 16 bytes, little endian: what travels
  static absl::StatusOr<Digest> FromBytes(const std::string& bytes);
};

// Pieces start at multiples of this many bytes.
inline constexpr int64_t kDigestBlockBytes = 64;

// Not thread-safe. Builders of one tensor may run in parallel and be merged.
class DigestBuilder {
 public:
  // Adds [offset, offset + bytes) of the tensor. Each byte once, in any order; offset is a multiple
  // of 64, and so is `bytes` unless the piece ends the tensor.
  void Add(int64_t offset, const void* data, int64_t bytes);
  void Merge(const DigestBuilder& other);
  Digest Finish(int64_t tensor_bytes) const;

 private:
  Digest sum_;
};

// The same for bytes that come in order, in pieces of any size. Not thread-safe.
class SequentialDigest {
 public:
  void Append(const void* data, int64_t bytes);
  Digest Finish();  // once, after the last piece

 private:
  DigestBuilder builder_;
  int64_t offset_ = 0;
  unsigned char begun_[kDigestBlockBytes];  // the block that the last piece ended in
};

Digest DigestOf(const void* data, int64_t bytes);

// Rows of `row_bytes` that make up a piece of about `target_bytes` which starts on a block and on a
// panel of packed weights whatever its index: a multiple of 16 and of 64 / gcd(64, row_bytes).
int64_t DigestPieceRows(int64_t row_bytes, int64_t target_bytes);

}  // namespace tandem
