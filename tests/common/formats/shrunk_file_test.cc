// Files that another program cuts short while they are read: an error, and never a signal.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/stat.h>

#include "common/formats/files.h"
#include "common/formats/safetensors.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using Catch::Matchers::Contains;

uint64_t SumOf(const uint8_t* data, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes; ++i) sum += data[i];
  return sum;
}

TEST_CASE("A mapped file that loses its pages reads as zeros there and says so") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "weights";
  constexpr size_t kBytes = 64 << 10;
  REQUIRE(WriteFileAtomically(path, std::string(kBytes, '\1')).ok());
  const auto other = MappedFile::Open(path);  // its pages are not touched
  const auto file = MappedFile::Open(path);
  REQUIRE(file.ok());
  REQUIRE(SumOf((*file)->data(), kBytes) == kBytes);
  REQUIRE((*file)->CheckWhole().ok());
  std::filesystem::resize_file(path, 8 << 10);
  REQUIRE(SumOf((*file)->data(), kBytes) == 8 << 10);
  const absl::Status status = (*file)->CheckWhole();
  REQUIRE(status.code() == absl::StatusCode::kDataLoss);
  REQUIRE_THAT(std::string(status.message()),
               Contains(path + " became shorter while it was read: it had 65536 bytes"));
  REQUIRE_FALSE((*other)->CheckWhole().ok());
  // Back at its length, the file does not have again what was read as zeros.
  std::filesystem::resize_file(path, kBytes);
  REQUIRE_FALSE((*file)->CheckWhole().ok());
}

TEST_CASE("A file that ends within its last page is told by its size") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "small";
  REQUIRE(WriteFileAtomically(path, "0123456789").ok());
  const auto file = MappedFile::Open(path);
  std::filesystem::resize_file(path, 5);
  REQUIRE(SumOf((*file)->data(), 10) == '0' + '1' + '2' + '3' + '4');
  REQUIRE_FALSE((*file)->CheckWhole().ok());
}

TEST_CASE("A file that is replaced by a rename, as writers here do, stays whole for its readers") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "model";
  REQUIRE(WriteFileAtomically(path, std::string(9000, '\1')).ok());
  const auto file = MappedFile::Open(path);
  REQUIRE(WriteFileAtomically(path, "x").ok());
  REQUIRE(SumOf((*file)->data(), 9000) == 9000);
  REQUIRE((*file)->CheckWhole().ok());
}

TEST_CASE("A whole text is read without a mapping, and a pipe is refused instead of waited for") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "text", pipe = dir.path() / "pipe";
  REQUIRE(WriteFileAtomically(path, "some text").ok());
  REQUIRE(ReadWholeFile(path).value() == "some text");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE_THAT(std::string(ReadWholeFile(pipe).status().message()), Contains("cannot be read"));
  REQUIRE(ReadWholeFile(dir.path()).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
