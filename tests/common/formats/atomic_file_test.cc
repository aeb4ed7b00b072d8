#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "tests/common/formats/file_size_limit.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

size_t EntriesIn(const fs::path& dir) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("An atomic file is invisible until committed", "[tensor_file][atomic]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "a.txt";
  auto file = AtomicFile::Create(path).value();
  REQUIRE(file->Append("abc", 3).ok());
  REQUIRE(file->WriteAt(1, "X", 1).ok());
  REQUIRE(!fs::exists(path));
  REQUIRE(file->Commit().ok());
  REQUIRE(ReadWholeFile(path).value() == "aXc");
  REQUIRE(EntriesIn(dir.path()) == 1);
}

TEST_CASE("An atomic file that is dropped leaves the old one", "[tensor_file][atomic]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "a.txt";
  REQUIRE(WriteFileAtomically(path, "old").ok());
  {
    auto file = AtomicFile::Create(path).value();
    REQUIRE(file->Append("new", 3).ok());
  }
  REQUIRE(ReadWholeFile(path).value() == "old");
  REQUIRE(EntriesIn(dir.path()) == 1);
}

TEST_CASE("A full disk is reported with path and bytes and leaves nothing",
          "[tensor_file][atomic]") {
  using Catch::Matchers::Contains;
  const testing::TempDir dir;
  const std::string path = dir.path() / "big.bin";
  const std::string content(100'000, 'x');
  absl::Status status;
  {
    const testing::FileSizeLimit limit(4096);
    status = WriteFileAtomically(path, content);
  }
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE_THAT(std::string(status.message()), Contains(path) && Contains("100000 bytes") &&
                                                  Contains("4096 of them written") &&
                                                  Contains("free disk space"));
  REQUIRE(EntriesIn(dir.path()) == 0);
}

TEST_CASE("A missing folder is named", "[tensor_file][atomic]") {
  const testing::TempDir dir;
  const absl::Status status = WriteFileAtomically(dir.path() / "no" / "a.txt", "x");
  REQUIRE(status.code() == absl::StatusCode::kNotFound);
  REQUIRE(ReadWholeFile(dir.path() / "none").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("A path that cannot be written is not a lost peer", "[tensor_file][atomic]") {
  const testing::TempDir dir;
  fs::create_directories(PartialPath(dir.path() / "a"));  // a folder where the file is written
  const absl::Status status = WriteFileAtomically(dir.path() / "a", "x");
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(ReadWholeFile(dir.path()).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("An atomic directory appears whole and cleans up a killed writer's",
          "[tensor_file][atomic]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "checkpoint";
  fs::create_directories(PartialPath(path));
  std::ofstream(PartialPath(path) + "/stale") << "left by a killed process";
  auto directory = AtomicDirectory::Create(path + "/").value();
  REQUIRE(EntriesIn(directory->partial_path()) == 0);
  REQUIRE(WriteFileAtomically(directory->partial_path() + "/a", "1").ok());
  REQUIRE(!fs::exists(path));
  REQUIRE(directory->Commit().ok());
  REQUIRE(ReadWholeFile(path + "/a").value() == "1");
  REQUIRE(EntriesIn(dir.path()) == 1);
}

TEST_CASE("An atomic directory replaces only where asked to", "[tensor_file][atomic]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "checkpoint";
  fs::create_directories(path);
  REQUIRE(WriteFileAtomically(path + "/old", "1").ok());
  REQUIRE(AtomicDirectory::Create(path).status().code() == absl::StatusCode::kAlreadyExists);
  { auto dropped = AtomicDirectory::Create(path, AtomicDirectory::IfExists::kReplace).value(); }
  REQUIRE(fs::exists(path + "/old"));
  auto directory = AtomicDirectory::Create(path, AtomicDirectory::IfExists::kReplace).value();
  REQUIRE(WriteFileAtomically(directory->partial_path() + "/new", "2").ok());
  REQUIRE(directory->Commit().ok());
  REQUIRE(!fs::exists(path + "/old"));
  REQUIRE(fs::exists(path + "/new"));
  REQUIRE(EntriesIn(dir.path()) == 1);
}

}  // namespace tandem
