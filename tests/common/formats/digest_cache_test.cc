#include "common/formats/digest_cache.h"

#include <fstream>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "common/formats/files.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

struct CachedFiles {
  CachedFiles() { std::ofstream(file) << "rows"; }
  FileDigest Digest(DigestCache& digests) const {
    const auto digest = digests.Digest({file}, 1);
    INFO(digest.status());
    REQUIRE(digest.ok());
    return digest->front();
  }

  testing::TempDir dir;
  const std::string file = dir.path() / "file";
  const std::string cache = dir.path() / "digests.json";
};

}  // namespace

TEST_CASE("a file that has just changed is not remembered, and read again", "[digest_cache]") {
  const CachedFiles f;
  DigestCache first(f.cache);
  REQUIRE(f.Digest(first) == DigestText("rows"));
  REQUIRE(first.Save().ok());
  REQUIRE(*ReadWholeFile(f.cache) == "{}\n");
  std::ofstream(f.file) << "ROWS";
  DigestCache second(f.cache);
  REQUIRE(f.Digest(second) == DigestText("ROWS"));
}

TEST_CASE("a known file is not read again, until one of its marks differs", "[digest_cache]") {
  const CachedFiles f;
  struct stat file {};
  REQUIRE(stat(f.file.c_str(), &file) == 0);
  const std::string mark = fmt::format(
      R"({{"{}": {{"stamp": [{}, {}, {}, {}, {}, {}, {}], "bytes": 4, "digest": "remembered"}}}})",
      f.file, file.st_dev, file.st_ino, file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec,
      file.st_ctim.tv_sec, file.st_ctim.tv_nsec);
  std::ofstream(f.cache) << mark;
  DigestCache known(f.cache);
  REQUIRE(f.Digest(known).hex == "remembered");
  REQUIRE(known.Save().ok());
  REQUIRE(testing::Has(*ReadWholeFile(f.cache), "remembered"));
  // The same size and the same time of modification, which can be set: the time of change tells.
  std::ofstream(f.file) << "ROWS";
  const timespec times[] = {file.st_atim, file.st_mtim};
  REQUIRE(utimensat(AT_FDCWD, f.file.c_str(), times, 0) == 0);
  DigestCache changed(f.cache);
  REQUIRE(f.Digest(changed) == DigestText("ROWS"));
}

TEST_CASE("a damaged cache is an empty one, and a missing file an error", "[digest_cache]") {
  const CachedFiles f;
  std::ofstream(f.cache) << "{\"" << f.file << "\": [";
  DigestCache damaged(f.cache);
  REQUIRE(f.Digest(damaged) == DigestText("rows"));
  REQUIRE(absl::IsNotFound(damaged.Digest({f.dir.path() / "missing"}, 1).status()));
}

}  // namespace tandem
