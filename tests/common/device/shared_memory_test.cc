#include <catch2/catch.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include "common/device/shared_region.h"

namespace tandem {

TEST_CASE("shared memory keeps its size, and a claim of more is refused") {
  const auto memory = CreateSharedMemory("test", 4096);
  REQUIRE(memory.ok());
  REQUIRE(CheckSharedMemory(memory->get(), 4096).ok());
  REQUIRE(CheckSharedMemory(memory->get(), 8192).code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(ftruncate(memory->get(), 10) != 0);
}

TEST_CASE("shared memory beyond the machine is refused with its size") {
  const auto status = CreateSharedMemory("bucket", int64_t{1} << 50).status();
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(std::string(status.message()).find("bucket") != std::string::npos);
}

TEST_CASE("an unsealed file is not taken for shared memory") {
  UniqueFd fd(memfd_create("plain", MFD_CLOEXEC));
  REQUIRE(ftruncate(fd.get(), 4096) == 0);
  REQUIRE(CheckSharedMemory(fd.get(), 4096).code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace tandem
