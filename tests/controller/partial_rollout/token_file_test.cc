#include "controller/partial_rollout/buffer/token_file.h"

#include <vector>

#include <catch2/catch.hpp>

#include "tests/common/formats/file_size_limit.h"
#include "tests/support/small_disk.h"

namespace tandem {
namespace {

TokenArrays ArraysOf(int32_t first, size_t tokens) {
  TokenArrays arrays;
  for (size_t i = 0; i < tokens; ++i) {
    arrays.tokens.push_back(first + static_cast<int32_t>(i));
    arrays.log_probs.push_back(-static_cast<float>(i));
  }
  return arrays;
}

struct AppendedArrays {
  explicit AppendedArrays(const std::string& dir) : file(*TokenFile::Create(dir)) {}

  absl::Status Append(size_t tokens) {
    const TokenArrays arrays = ArraysOf(static_cast<int32_t>(offsets.size()) * 1000, tokens);
    const absl::StatusOr<int64_t> offset = file->Append(arrays);
    if (!offset.ok()) return offset.status();
    offsets.push_back(*offset);
    appended.push_back(arrays);
    return absl::OkStatus();
  }
  void RequireAllRead() const {
    for (size_t i = 0; i < offsets.size(); ++i) {
      const auto read = file->Read(offsets[i], std::ssize(appended[i].tokens), true);
      INFO(read.status());
      REQUIRE(read->tokens == appended[i].tokens);
      REQUIRE(read->log_probs == appended[i].log_probs);
    }
  }

  std::shared_ptr<TokenFile> file;
  std::vector<int64_t> offsets;
  std::vector<TokenArrays> appended;
};

}  // namespace

TEST_CASE("arrays that a full disk refuses are read from memory, and written later",
          "[token_file]") {
  const testing::TempDir dir;
  const testing::SmallDisk disk(dir.path() / "disk", 1024);
  if (!disk.mounted()) return;  // only root can; full_disk_test skips itself then
  AppendedArrays arrays(disk.path());
  REQUIRE(arrays.Append(700).ok());
  disk.Fill(8 << 10);
  for (int i = 0; i < 4; ++i) REQUIRE(arrays.Append(700).ok());
  arrays.RequireAllRead();
  disk.Empty();
  const int64_t before = disk.free_bytes();
  REQUIRE(arrays.Append(700).ok());
  REQUIRE(disk.free_bytes() < before);
  arrays.RequireAllRead();
  REQUIRE(arrays.file->bytes() == 6 * TokenFile::Bytes(700, true));
}

TEST_CASE("a file that may not grow fails, and keeps what it has", "[token_file]") {
  const testing::TempDir dir;
  AppendedArrays arrays(dir.path());
  REQUIRE(arrays.Append(10).ok());
  {
    const testing::FileSizeLimit limit(100);
    REQUIRE(absl::IsResourceExhausted(arrays.Append(10)));
  }
  arrays.RequireAllRead();
  REQUIRE(arrays.Append(5).ok());
  arrays.RequireAllRead();
  REQUIRE(arrays.file->bytes() == TokenFile::Bytes(15, true));
}

}  // namespace tandem
