#include <catch2/catch.hpp>

#include "controller/store/trackers/tensorboard_tracker.h"

namespace tandem {
namespace {

std::string Hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char byte : bytes) {
    hex += kDigits[(static_cast<uint8_t>(byte)) >> 4];
    hex += kDigits[static_cast<uint8_t>(byte) & 15];
  }
  return hex;
}

}  // namespace

TEST_CASE("Crc32c gives the numbers of RFC 3720 appendix B.4", "[observe]") {
  REQUIRE(Crc32c(std::string(32, '\0')) == 0x8A9136AAu);
  REQUIRE(Crc32c(std::string(32, '\xff')) == 0x62A8AB43u);
  std::string ascending;
  for (int i = 0; i < 32; ++i) ascending.push_back(static_cast<char>(i));
  REQUIRE(Crc32c(ascending) == 0x46DD794Eu);
  REQUIRE(Crc32c("123456789") == 0xE3069283u);
}

TEST_CASE("A scalar event has the bytes of tensorflow.Event", "[observe]") {
  // 09 wall_time f64 | 10 step | 2a summary { 0a value { 0a tag, 15 simple_value f32 } }
  REQUIRE(Hex(ScalarsEvent(1.5, 300, {{"a/b", 2.0}})) ==
          "09000000000000f83f"
          "10ac02"
          "2a0c"
          "0a0a"
          "0a03612f62"
          "1500000040");
}

TEST_CASE("An event file begins with its version", "[observe]") {
  REQUIRE(Hex(FileVersionEvent(0)) ==
          "090000000000000000"
          "1a0d627261696e2e4576656e743a32");
}

TEST_CASE("A session start has the bytes of tensorflow.Event", "[observe]") {
  // 09 wall_time f64 | 10 step | 3a session_log { 08 status START }
  REQUIRE(Hex(SessionStartEvent(1.5, 300)) ==
          "09000000000000f83f"
          "10ac02"
          "3a020801");
}

TEST_CASE("A TFRecord frames data with masked checksums", "[observe]") {
  const std::string record = TfRecord("abc");
  REQUIRE(record.size() == 8 + 4 + 3 + 4);
  REQUIRE(Hex(record.substr(0, 8)) == "0300000000000000");
  REQUIRE(record.substr(12, 3) == "abc");
  // crc32c("abc") = 0x364b3fb7; rotated right by 15 and offset by 0xa282ead8.
  REQUIRE(Crc32c("abc") == 0x364b3fb7u);
  const uint32_t masked = ((0x364b3fb7u >> 15) | (0x364b3fb7u << 17)) + 0xa282ead8u;
  uint32_t stored = 0;
  for (int i = 3; i >= 0; --i) stored = (stored << 8) | static_cast<uint8_t>(record[15 + i]);
  REQUIRE(stored == masked);
}

}  // namespace tandem
