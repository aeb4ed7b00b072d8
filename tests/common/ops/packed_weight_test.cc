#include "common/ops/packed_weight.h"

#include <cstring>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::vector<std::byte> RandomBytes(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace

TEST_CASE("PackRows and UnpackRows are inverse for odd shapes and pieces", "[ops][packed_weight]") {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    for (const int64_t rows : {1, 4, 15, 16, 17, 50}) {
      for (const int64_t cols : {1, 2, 7, 31, 32, 33, 48, 75}) {
        const int64_t row_bytes = cols * static_cast<int64_t>(DTypeBytes(dtype));
        const std::vector<std::byte> source = RandomBytes(rows * row_bytes, 1);
        std::vector<std::byte> packed(static_cast<size_t>(PackedBytes(rows, cols, dtype)));
        std::vector<std::byte> pieces(packed.size()), back(source.size());
        PackRows(packed.data(), cols, dtype, 0, rows, source.data());
        for (int64_t row = 0; row < rows; row += 3) {
          const int64_t count = std::min<int64_t>(3, rows - row);
          PackRows(pieces.data(), cols, dtype, row, count, source.data() + row * row_bytes);
        }
        REQUIRE(packed == pieces);
        UnpackRows(packed.data(), cols, dtype, 0, rows, back.data());
        REQUIRE(back == source);
        std::vector<std::byte> last(static_cast<size_t>(row_bytes));
        UnpackRows(packed.data(), cols, dtype, rows - 1, 1, last.data());
        REQUIRE(std::memcmp(last.data(), source.data() + (rows - 1) * row_bytes, last.size()) == 0);
      }
    }
  }
}

TEST_CASE("Packed bf16 weights interleave pairs of k in panels of 16 rows",
          "[ops][packed_weight]") {
  const int64_t rows = 18, cols = 5;
  std::vector<Bf16> source(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<Bf16>(i + 1);
  std::vector<std::byte> packed(static_cast<size_t>(PackedBytes(rows, cols, DType::kBFloat16)));
  REQUIRE(packed.size() == 2 * 16 * 32 * 2);
  PackRows(packed.data(), cols, DType::kBFloat16, 0, rows, source.data());
  const auto at = [&](int64_t n, int64_t k) {
    Bf16 value = 0;
    const int64_t index = (n / 16) * 16 * 32 + (k / 2) * 32 + (n % 16) * 2 + k % 2;
    std::memcpy(&value, packed.data() + index * 2, 2);
    return value;
  };
  for (int64_t n = 0; n < 32; ++n) {
    for (int64_t k = 0; k < 32; ++k) {
      const bool inside = n < rows && k < cols;
      REQUIRE(at(n, k) == (inside ? source[static_cast<size_t>(n * cols + k)] : 0));
    }
  }
}

}  // namespace tandem
