// A group that NCCL fails to start, with a stand-in for the library.
#include <string>

#include <catch2/catch.hpp>

#include "common/comm/cuda/nccl_api.h"
#include "common/device/cuda/library_search.h"

namespace tandem {

TEST_CASE("a communicator that NCCL began and could not join is given back") {
  PinNcclSums();
  const auto nccl = OpenNccl();
  INFO(nccl.status());
  REQUIRE(nccl.ok());
  void* const library = OpenLibrary("libnccl.so.2", "").value();
  const auto aborted =
      reinterpret_cast<int (*)()>(FindFunction(library, "FakeNcclAborted").value());
  REQUIRE(aborted() == 0);
  const absl::Status joined = (*nccl)->Join({.rank = 0, .world_size = 2}).status();
  REQUIRE(absl::IsInternal(joined));
  REQUIRE(std::string(joined.message()).find("ncclCommInitRankConfig: stand-in error") !=
          std::string::npos);
  REQUIRE(aborted() == 1);
  // Where there is none, there is nothing to give back.
  REQUIRE(absl::IsInternal((*nccl)->Join({.rank = 1, .world_size = 2}).status()));
  REQUIRE(aborted() == 1);
}

}  // namespace tandem
