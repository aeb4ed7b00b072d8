#include "common/types/xxh3.h"

#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/support/own_progress.h"

namespace tandem {
namespace {

TEST_CASE("An XXH3 is spelled as xxhsum spells it, and its bytes are its digits", "[xxh3]") {
  // xxhsum -H2 prints these for an empty file and for the three letters.
  REQUIRE(HashXxh3(nullptr, 0).Hex() == "99aa06d3014798d86001c324468d497f");
  const Xxh3Hash hash = HashXxh3("abc", 3);
  REQUIRE(hash.Hex() == "06b05ab6733a618578af5f94892f3950");
  std::string digits;
  for (const std::byte byte : hash.Bytes()) digits += fmt::format("{:02x}", static_cast<int>(byte));
  REQUIRE(digits == hash.Hex());
}

TEST_CASE("A text that is appended in pieces has the hash of the whole", "[xxh3]") {
  const std::string text(1000, 'x');
  Xxh3Stream stream;
  REQUIRE(stream.Finish() == HashXxh3(nullptr, 0));
  stream.Append(text.data(), 1);
  stream.Append(text.data(), 0);
  stream.Append(text.data() + 1, text.size() - 1);
  REQUIRE(stream.Finish() == HashXxh3(text.data(), text.size()));
}

TEST_CASE("A long text is hashed in pieces, each of which is progress", "[xxh3]") {
  const std::string text((size_t{48} << 20) + 5, 'x');
  Xxh3Stream stream;
  stream.Append(text.data(), text.size());
  const int64_t before = testing::OwnProgress().moves;
  REQUIRE(HashXxh3(text.data(), text.size()) == stream.Finish());
  REQUIRE(testing::OwnProgress().moves - before >= 4);
}

}  // namespace
}  // namespace tandem
