// The digest of a tensor's bytes. It does not depend on how the bytes are split, laid out or
// ordered: two 64-bit sums over the 64-byte blocks, each mixed with keys of its logical offset
// (digest_blocks.h). The last block is padded with zeros, the length is mixed in. It finds
// accidents, not forgeries: a random change is missed with probability 2^-64.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "common/weights/digest_blocks.h"

namespace tandem {

struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Digest& a, const Digest& b) {
    return a.low == b.low && a.high == b.high;
  }
  std::string Hex() const;    // 32 digits
  std::string Bytes() const;  // 16 bytes, little endian, as sent to another process
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
  // Adds the sums of some of the tensor's blocks that another processor has computed.
  void Add(const BlockSums& sums) { sums_.Add(sums); }
  Digest Finish(int64_t tensor_bytes) const;

 private:
  friend class DigestRun;
  BlockSums sums_;
};

// Like DigestBuilder, for a run of the tensor's bytes that are appended in order, in pieces of any
// size. A run may begin and end inside a block; adjacent runs can be joined. Not thread-safe.
class DigestRun {
 public:
  explicit DigestRun(int64_t offset = 0) : begin_(offset), end_(offset) {}
  void Append(const void* data, int64_t bytes);
  // Appends whole blocks by their sums; the run so far must end at a block boundary.
  void AppendBlocks(const BlockSums& sums, int64_t bytes);
  // `next` begins where this run ends.
  void Join(const DigestRun& next);
  // For a run that begins at 0: the digest of a tensor that ends here.
  Digest Finish() const;

  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  // The form that ranks exchange, kWireBytes each.
  static constexpr size_t kWireBytes = 2 * sizeof(int64_t) + 16 + 2 * kDigestBlockBytes;
  void ToBytes(std::byte* out) const;
  static DigestRun FromBytes(const std::byte* bytes);

 private:
  // End of the block in which the run begins, or the run's beginning if that is a block boundary.
  int64_t head_end() const;

  int64_t begin_;
  int64_t end_;
  DigestBuilder builder_;                        // blocks that are wholly in the run
  unsigned char head_[kDigestBlockBytes] = {};   // bytes at their place in the first block
  unsigned char begun_[kDigestBlockBytes] = {};  // of the last, incomplete block
};

Digest DigestOf(const void* data, int64_t bytes);

// Rows of `row_bytes` in a piece of about `target_bytes` such that every piece starts on a digest
// block and on a panel of packed weights: a multiple of 16 and of 64 / gcd(64, row_bytes).
int64_t DigestPieceRows(int64_t row_bytes, int64_t target_bytes);

}  // namespace tandem
