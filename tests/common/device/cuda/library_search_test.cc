#include "common/device/cuda/library_search.h"

#include <cstdlib>

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("named folders come before the loader's path, and CUDA's own after it") {
  setenv("TANDEM_CUDA_LIBS", "/first::/second", 1);
  const auto folders = LibraryFolders("nvidia/none/lib");
  unsetenv("TANDEM_CUDA_LIBS");
  REQUIRE(folders.size() >= 4);
  REQUIRE(folders[0] == "/first");
  REQUIRE(folders[1] == "/second");
  REQUIRE(folders[2].empty());
  REQUIRE(folders.back() == "/usr/local/cuda/lib64");
}

TEST_CASE("a library that is nowhere is named with the folders that were searched") {
  setenv("TANDEM_CUDA_LIBS", "/no/such/folder", 1);
  const auto library = OpenLibrary("libtandem-nothing.so.7", "");
  unsetenv("TANDEM_CUDA_LIBS");
  REQUIRE(library.status().code() == absl::StatusCode::kFailedPrecondition);
  const std::string message(library.status().message());
  REQUIRE(message.find("libtandem-nothing.so.7 was not found") == 0);
  REQUIRE(message.find("/no/such/folder") != std::string::npos);
  REQUIRE(message.find("the loader's path") != std::string::npos);
}

TEST_CASE("a function that a library lacks is named") {
  const auto library = OpenLibrary("libm.so.6", "");
  REQUIRE(library.ok());
  REQUIRE(FindFunction(*library, "cos").ok());
  REQUIRE(FindFunction(*library, "tandem_no_such").status().code() ==
          absl::StatusCode::kFailedPrecondition);
}

}  // namespace tandem
