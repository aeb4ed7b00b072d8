#include "common/formats/file_io.h"

#include <cerrno>
#include <string>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <unistd.h>

#include "common/formats/files.h"
#include "tests/common/formats/file_size_limit.h"
#include "tests/support/own_progress.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

struct IoFile {
  IoFile() { REQUIRE(fd >= 0); }
  ~IoFile() { close(fd); }
  std::string Text() const { return ReadWholeFile(path).value(); }

  testing::TempDir dir;
  const std::string path = dir.path() / "file";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
};

}  // namespace

TEST_CASE("What is written at an offset is read from there", "[file_io]") {
  const IoFile file;
  REQUIRE(WriteAll(file.fd, std::string("abcdef"), 2).error == 0);
  std::string read(3, '?');
  const IoResult whole = ReadAll(file.fd, read, 3);
  REQUIRE(whole.error == 0);
  REQUIRE(whole.bytes == 3);
  REQUIRE(read == "bcd");
}

TEST_CASE("Bytes that are read or written are progress", "[file_io]") {
  const IoFile file;
  const int64_t before = testing::OwnProgress().moves;
  REQUIRE(WriteAll(file.fd, std::string("abc"), 0).error == 0);
  const int64_t written = testing::OwnProgress().moves;
  REQUIRE(written > before);
  std::string read(3, '?');
  REQUIRE(ReadAll(file.fd, read, 0).error == 0);
  REQUIRE(testing::OwnProgress().moves > written);
}

TEST_CASE("A read ends with the file, and a write with the room", "[file_io]") {
  const IoFile file;
  REQUIRE(WriteAll(file.fd, std::string("abcdef"), 0).error == 0);
  std::string read(10, '?');
  const IoResult part = ReadAll(file.fd, read, 4);
  REQUIRE(part.error == 0);
  REQUIRE(part.bytes == 2);
  const testing::FileSizeLimit full(8);
  const IoResult write = WriteAll(file.fd, std::string("ghijkl"), 6);
  REQUIRE(write.error == EFBIG);
  REQUIRE(write.bytes == 2);
}

TEST_CASE("A record that has no room leaves nothing of itself", "[file_io]") {
  const IoFile file;
  for (const Sync sync : {Sync::kNo, Sync::kYes}) {
    REQUIRE(ftruncate(file.fd, 0) == 0);
    REQUIRE(AppendOrCutBack(file.fd, std::string("one\n"), 0, sync).error == 0);
    {
      const testing::FileSizeLimit full(6);
      const AppendResult append = AppendOrCutBack(file.fd, std::string("two\n"), 4, sync);
      REQUIRE(append.error == EFBIG);
      REQUIRE_FALSE(append.torn);
    }
    REQUIRE(file.Text() == "one\n");
    REQUIRE(AppendOrCutBack(file.fd, std::string("three\n"), 4, sync).error == 0);
    REQUIRE(file.Text() == "one\nthree\n");
  }
}

TEST_CASE("A file that cannot be cut back is told", "[file_io]") {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  REQUIRE(full >= 0);
  const AppendResult append = AppendOrCutBack(full, std::string("one\n"), 0, Sync::kNo);
  close(full);
  REQUIRE(append.error == ENOSPC);
  REQUIRE(append.torn);
}

}  // namespace tandem
