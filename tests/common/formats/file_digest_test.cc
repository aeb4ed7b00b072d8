#include "common/formats/file_digest.h"

#include <fstream>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

std::string WriteBytes(const testing::TempDir& dir,
                       const std::string& name,
                       const std::string& bytes) {
  const std::string path = dir.path() / name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

FileDigest DigestOfFile(const std::string& path, int threads = 1) {
  const auto digests = DigestFiles({path}, threads);
  INFO(digests.status());
  REQUIRE(digests.ok());
  return digests->front();
}

}  // namespace

TEST_CASE("A file's digest is that of its bytes, by any number of threads", "[file_digest]") {
  const testing::TempDir dir;
  std::string bytes((size_t{65} << 20) + 7, '\0');  // three pieces
  for (size_t i = 0; i < bytes.size(); i += 4097) bytes[i] = static_cast<char>(i);
  const std::string path = WriteBytes(dir, "large", bytes);
  const FileDigest one = DigestOfFile(path);
  REQUIRE(one.bytes == static_cast<int64_t>(bytes.size()));
  REQUIRE(one.hex.size() == 32);
  REQUIRE(DigestOfFile(path, 5) == one);
  REQUIRE(DigestText(bytes) == one);
  REQUIRE(DigestOfFile(WriteBytes(dir, "moved", bytes)) == one);
}

TEST_CASE("Any changed byte, and any other length, gives another digest", "[file_digest]") {
  const testing::TempDir dir;
  const std::string bytes = "one row\nanother row\n";
  const FileDigest before = DigestOfFile(WriteBytes(dir, "rows", bytes));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] ^= 1;
    REQUIRE_FALSE(DigestText(changed) == before);
  }
  REQUIRE_FALSE(DigestText(bytes + '\0') == before);
  REQUIRE_FALSE(DigestText("") == before);
  REQUIRE(DigestOfFile(WriteBytes(dir, "empty", "")) == DigestText(""));
}

TEST_CASE("A file that cannot be read is named", "[file_digest]") {
  const testing::TempDir dir;
  const std::string missing = dir.path() / "missing";
  const auto digests = DigestFiles({WriteBytes(dir, "there", "x"), missing}, 2);
  REQUIRE(absl::IsNotFound(digests.status()));
  REQUIRE(testing::Has(std::string(digests.status().message()), missing));
  REQUIRE_FALSE(DigestFiles({dir.path().string()}, 1).ok());
}

}  // namespace tandem
