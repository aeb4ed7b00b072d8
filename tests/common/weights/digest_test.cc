#include "common/weights/digest.h"

#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/ops/cpu/packed_weight.h"

namespace tandem {
namespace {

std::vector<unsigned char> BytesToDigest(int64_t count) {
  std::vector<unsigned char> bytes(count);
  uint32_t state = 12345;
  for (unsigned char& byte : bytes) byte = (state = state * 1664525u + 1013904223u) >> 24;
  return bytes;
}

}  // namespace

TEST_CASE("a digest does not depend on pieces or their order") {
  const std::vector<unsigned char> data = BytesToDigest(10007);
  const Digest whole = DigestOf(data.data(), data.size());
  for (const int64_t piece : {64, 128, 640, 4096, 9984}) {
    std::vector<int64_t> offsets;
    for (int64_t at = 0; at < 10007; at += piece) offsets.push_back(at);
    DigestBuilder forward, backward, even, odd;
    for (size_t i = 0; i < offsets.size(); ++i) {
      const int64_t at = offsets[i], back = offsets[offsets.size() - 1 - i];
      forward.Add(at, data.data() + at, std::min<int64_t>(piece, 10007 - at));
      backward.Add(back, data.data() + back, std::min<int64_t>(piece, 10007 - back));
      (i % 2 == 0 ? even : odd).Add(at, data.data() + at, std::min<int64_t>(piece, 10007 - at));
    }
    even.Merge(odd);
    REQUIRE(forward.Finish(10007) == whole);
    REQUIRE(backward.Finish(10007) == whole);
    REQUIRE(even.Finish(10007) == whole);
  }
}

TEST_CASE("bytes that come in order have the same digest however they are cut") {
  const std::vector<unsigned char> data = BytesToDigest(3001);
  for (const int64_t bytes : {0, 1, 63, 64, 65, 3001}) {
    const Digest whole = DigestOf(data.data(), bytes);
    for (const int64_t piece : {1, 7, 63, 64, 65, 100, 4096}) {
      DigestRun digest;
      for (int64_t at = 0; at < bytes; at += piece) {
        digest.Append(data.data() + at, std::min(piece, bytes - at));
      }
      REQUIRE(digest.Finish() == whole);
    }
  }
}

TEST_CASE("runs of bytes that follow each other join to the digest of the whole") {
  const std::vector<unsigned char> data = BytesToDigest(1001);
  const Digest whole = DigestOf(data.data(), 1001);
  for (const std::vector<int64_t>& cuts : std::vector<std::vector<int64_t>>{{64, 128},
                                                                            {1, 2, 3},
                                                                            {63, 65},
                                                                            {10, 20, 130},
                                                                            {0, 0, 1001},
                                                                            {500},
                                                                            {70, 100, 127, 129}}) {
    DigestRun joined;
    int64_t from = 0;
    for (size_t i = 0; i <= cuts.size(); ++i) {
      const int64_t to = i < cuts.size() ? cuts[i] : 1001;
      DigestRun run(from);
      for (int64_t at = from; at < to; at += 33) {
        run.Append(data.data() + at, std::min<int64_t>(33, to - at));
      }
      std::byte wire[DigestRun::kWireBytes];
      run.ToBytes(wire);
      joined.Join(DigestRun::FromBytes(wire));
      from = to;
    }
    REQUIRE(joined.end() == 1001);
    REQUIRE(joined.Finish() == whole);
  }
}

TEST_CASE("every instruction set sums blocks alike, wherever they begin") {
  const std::vector<unsigned char> data = BytesToDigest(64 * 37 + 1);
  for (const int64_t index : {int64_t{0}, int64_t{5}, (int64_t{1} << 32) - 7, int64_t{1} << 33}) {
    for (const int64_t blocks : {0, 1, 2, 37}) {
      const BlockSums want = kDigestBaseline.sum(data.data() + 1, index, blocks);
      for (const DigestKernels* kernels : RunnableDigestKernels()) {
        INFO(kernels->name);
        const BlockSums got = kernels->sum(data.data() + 1, index, blocks);
        REQUIRE(got.first == want.first);
        REQUIRE(got.second == want.second);
      }
    }
  }
}

TEST_CASE("a digest finds every single bit flip") {
  std::vector<unsigned char> data = BytesToDigest(333);
  std::set<std::string> seen = {DigestOf(data.data(), 333).Hex()};
  for (int bit = 0; bit < 333 * 8; ++bit) {
    data[bit / 8] ^= 1 << (bit % 8);
    REQUIRE(seen.insert(DigestOf(data.data(), 333).Hex()).second);
    data[bit / 8] ^= 1 << (bit % 8);
  }
}

TEST_CASE("a digest finds moved blocks, words and lengths") {
  std::vector<unsigned char> data = BytesToDigest(640);
  const Digest digest = DigestOf(data.data(), 640);
  std::vector<unsigned char> moved = data;
  std::swap_ranges(moved.begin(), moved.begin() + 64, moved.begin() + 128);
  REQUIRE(!(DigestOf(moved.data(), 640) == digest));
  moved = data;
  std::swap_ranges(moved.begin(), moved.begin() + 8, moved.begin() + 8);
  REQUIRE(!(DigestOf(moved.data(), 640) == digest));
  moved = data;
  std::swap_ranges(moved.begin(), moved.begin() + 16, moved.begin() + 16);
  REQUIRE(!(DigestOf(moved.data(), 640) == digest));

  const std::vector<unsigned char> zeros(256);
  std::set<std::string> lengths;
  for (int64_t n = 0; n <= 256; ++n) lengths.insert(DigestOf(zeros.data(), n).Hex());
  REQUIRE(lengths.size() == 257);
}

TEST_CASE("sparse tensors have digests of their own") {
  std::set<std::string> seen;
  std::vector<uint16_t> data(4096);
  for (int i = 0; i < 4096; ++i) {
    for (const uint16_t value : {0x3f80, 0xbf80, 0x8000}) {
      data[i] = value;
      REQUIRE(seen.insert(DigestOf(data.data(), 8192).Hex()).second);
    }
    data[i] = 0;
  }
}

TEST_CASE("a digest is the same number on every machine and travels in 16 bytes") {
  const std::vector<unsigned char> data = BytesToDigest(1000);
  const Digest digest = DigestOf(data.data(), 1000);
  REQUIRE(digest.Hex() == "25e66b20a3d6d5337d1db57813fdb665");
  REQUIRE(digest.Bytes().size() == 16);
  REQUIRE(*Digest::FromBytes(digest.Bytes()) == digest);
  REQUIRE(Digest::FromBytes("short").status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("pieces of whole rows start on blocks and on panels") {
  for (const int64_t row_bytes : {2, 6, 20, 64, 80, 96, 1152, 3072, 100000}) {
    const int64_t rows = DigestPieceRows(row_bytes, 4096);
    REQUIRE(rows >= 1);
    REQUIRE(rows % kPackedPanelRows == 0);
    REQUIRE(rows * row_bytes % kDigestBlockBytes == 0);
    REQUIRE(rows * row_bytes <= std::max<int64_t>(4096, std::lcm<int64_t>(64, 16 * row_bytes)));
  }
}

}  // namespace tandem
