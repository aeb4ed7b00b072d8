#include "common/ops/cpu/packed_weight.h"

#include <cstring>
#include <random>
#include <utility>
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

// The format word by word, as packed_weight.h states it.
void PackSlowly(
    std::byte* packed, int64_t cols, int64_t element, int64_t row, const std::byte* values) {
  const int64_t k_per_word = 4 / element;
  const int64_t panel_words = element == 4 ? cols : (cols + 31) / 32 * 16;
  for (int64_t k = 0; k < cols; ++k) {
    const int64_t word = (row / 16 * panel_words + k / k_per_word) * 16 + row % 16;
    std::memcpy(packed + word * 4 + k % k_per_word * element, values + k * element,
                static_cast<size_t>(element));
  }
}

}  // namespace

TEST_CASE("Every instruction set packs and unpacks the same bytes at every offset",
          "[ops][packed_weight]") {
  // Lines of a storage on a 64-byte boundary are streamed with the widest registers there are,
  // others are stored with the narrowest. Random bytes are NaNs of all payloads, too.
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    const auto element = static_cast<int64_t>(DTypeBytes(dtype));
    for (const int64_t cols : {1, 8, 31, 32, 33, 40, 96, 131}) {
      const int64_t rows = 83;
      const auto bytes = static_cast<size_t>(PackedBytes(rows, cols, dtype));
      const std::vector<std::byte> source = RandomBytes(rows * cols * element, 3);
      std::vector<std::byte> expected(bytes);
      for (int64_t row = 0; row < rows; ++row) {
        PackSlowly(expected.data(), cols, element, row, source.data() + row * cols * element);
      }
      for (const size_t shift : {0, 16, 4, 1}) {
        std::vector<std::byte> memory(bytes + 128);
        std::byte* packed = memory.data();
        packed += (64 - reinterpret_cast<uintptr_t>(packed) % 64) % 64 + shift;
        for (const auto& [row, count] :
             {std::pair<int64_t, int64_t>{70, 13}, {0, 3}, {3, 61}, {64, 6}}) {
          PackRows(packed, cols, dtype, row, count, source.data() + row * cols * element);
        }
        REQUIRE(std::memcmp(packed, expected.data(), bytes) == 0);
        std::vector<std::byte> back(source.size() + 1);
        UnpackRows(packed, cols, dtype, 0, rows, back.data() + 1);
        REQUIRE(std::memcmp(back.data() + 1, source.data(), source.size()) == 0);
      }
    }
  }
}

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
