#include "common/weights/digest.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/ops/cpu/packed_weight.h"

namespace tandem {
namespace {

// The finalizer of splitmix64: it gives the length a value that sums of blocks do not produce by
// chance.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

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
  const auto sum = RunnableDigestKernels()[0]->sum;
  const int64_t index = offset / kDigestBlockBytes, blocks = bytes / kDigestBlockBytes;
  sums_.Add(sum(at, index, blocks));
  if (bytes % kDigestBlockBytes == 0) return;
  unsigned char tail[kDigestBlockBytes] = {};
  memcpy(tail, at + blocks * kDigestBlockBytes, bytes % kDigestBlockBytes);
  sums_.Add(sum(tail, index + blocks, 1));
}

void DigestBuilder::Merge(const DigestBuilder& other) { sums_.Add(other.sums_); }

Digest DigestBuilder::Finish(int64_t tensor_bytes) const {
  const auto length = static_cast<uint64_t>(tensor_bytes);
  return {sums_.first + Mix(length + 0x3C6EF372FE94F82Bu),
          sums_.second + Mix(length + 0xA54FF53A5F1D36F1u)};
}

int64_t DigestRun::head_end() const {
  return (begin_ + kDigestBlockBytes - 1) / kDigestBlockBytes * kDigestBlockBytes;
}

void DigestRun::Append(const void* data, int64_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  if (end_ < head_end()) {
    const int64_t taken = std::min(bytes, head_end() - end_);
    memcpy(head_ + end_ % kDigestBlockBytes, at, taken);
    at += taken;
    bytes -= taken;
    end_ += taken;
  }
  const int64_t begun = end_ % kDigestBlockBytes;
  if (bytes > 0 && begun > 0) {
    const int64_t taken = std::min(bytes, kDigestBlockBytes - begun);
    memcpy(begun_ + begun, at, taken);
    at += taken;
    bytes -= taken;
    end_ += taken;
    if (begun + taken == kDigestBlockBytes) {
      builder_.Add(end_ - kDigestBlockBytes, begun_, kDigestBlockBytes);
    }
  }
  if (bytes == 0) return;
  const int64_t whole = bytes / kDigestBlockBytes * kDigestBlockBytes;
  builder_.Add(end_, at, whole);
  memcpy(begun_, at + whole, bytes - whole);
  end_ += bytes;
}

void DigestRun::AppendBlocks(const BlockSums& sums, int64_t bytes) {
  TANDEM_CHECK(end_ % kDigestBlockBytes == 0 && bytes % kDigestBlockBytes == 0, "not whole blocks");
  builder_.Add(sums);
  end_ += bytes;
}

void DigestRun::Join(const DigestRun& next) {
  TANDEM_CHECK(next.begin_ == end_, "runs of a digest that do not follow each other");
  const int64_t head = std::min(next.end_, next.head_end());
  Append(next.head_ + next.begin_ % kDigestBlockBytes, head - next.begin_);
  if (next.end_ == head) return;
  builder_.Merge(next.builder_);
  memcpy(begun_, next.begun_, sizeof(begun_));
  end_ = next.end_;
}

Digest DigestRun::Finish() const {
  TANDEM_CHECK(begin_ == 0, "a digest of a tensor without its beginning");
  DigestBuilder whole = builder_;
  const int64_t begun = end_ % kDigestBlockBytes;
  if (begun > 0) whole.Add(end_ - begun, begun_, begun);
  return whole.Finish(end_);
}

void DigestRun::ToBytes(std::byte* out) const {
  memcpy(out, &begin_, 8);
  memcpy(out + 8, &end_, 8);
  memcpy(out + 16, &builder_.sums_.first, 8);
  memcpy(out + 24, &builder_.sums_.second, 8);
  memcpy(out + 32, head_, kDigestBlockBytes);
  memcpy(out + 32 + kDigestBlockBytes, begun_, kDigestBlockBytes);
}

DigestRun DigestRun::FromBytes(const std::byte* bytes) {
  DigestRun run;
  memcpy(&run.begin_, bytes, 8);
  memcpy(&run.end_, bytes + 8, 8);
  memcpy(&run.builder_.sums_.first, bytes + 16, 8);
  memcpy(&run.builder_.sums_.second, bytes + 24, 8);
  memcpy(run.head_, bytes + 32, kDigestBlockBytes);
  memcpy(run.begun_, bytes + 32 + kDigestBlockBytes, kDigestBlockBytes);
  return run;
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
