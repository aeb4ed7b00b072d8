#include <catch2/catch.hpp>

#include "common/net/protocol.h"

namespace tandem {

TEST_CASE("A worker listens beside its controller's socket unless told otherwise", "[cluster]") {
  REQUIRE(WorkerListenAddress("trainer", 2, "", "unix:/run/x/controller.sock") ==
          "unix:/run/x/trainer-2.sock");
  REQUIRE(WorkerListenAddress("rollout", 0, "", "unix:c.sock") == "unix:./rollout-0.sock");
  REQUIRE(WorkerListenAddress("rollout", 2, "", "127.0.0.1:4000") == "127.0.0.1:0");
  REQUIRE(WorkerListenAddress("trainer", 0, "127.0.0.1:9", "unix:/a/b") == "127.0.0.1:9");
  // Longer than a socket's path may be.
  REQUIRE(WorkerListenAddress("trainer", 0, "", "unix:/" + std::string(120, 'x') + "/c.sock") ==
          "127.0.0.1:0");
  // On another host nobody reaches a loopback address.
  REQUIRE(WorkerListenAddress("trainer", 0, "", "head.cluster:7001") == "0.0.0.0:0");
}

}  // namespace tandem
