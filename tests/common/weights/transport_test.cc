#include <catch2/catch.hpp>

#include "common/weights/weight_transport.h"

namespace tandem {

TEST_CASE("A worker on a CPU takes shared memory, says why, and refuses CUDA IPC") {
  const auto chosen = ChooseTransport("auto");
  REQUIRE(chosen.ok());
  REQUIRE(*chosen ==
          "weight transport: shm (a memfd over the pair's socket), chosen because the device is a "
          "CPU");
  const auto forced = ChooseTransport("shm");
  REQUIRE(forced.ok());
  REQUIRE(forced->find("as weight_sync.transport says") != std::string::npos);
  const auto over_tcp = ChooseTransport("tcp");
  REQUIRE(over_tcp.ok());
  REQUIRE(over_tcp->find("weight transport: tcp") == 0);
  const auto refused = ChooseTransport("ipc").status();
  REQUIRE(refused.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(std::string(refused.message()).find("weight_sync.transport=ipc") != std::string::npos);
}

TEST_CASE("a worker on a GPU whose weights go over TCP hands out no memory of the GPU") {
  const auto chosen = ChooseCudaTransport("tcp", absl::OkStatus());
  REQUIRE(chosen.ok());
  REQUIRE_FALSE(chosen->ipc);
  REQUIRE(chosen->why.find("weight transport: tcp") == 0);
}

}  // namespace tandem
