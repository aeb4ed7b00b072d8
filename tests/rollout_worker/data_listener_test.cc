// Where a rollout takes weights over TCP, and where it opens nothing.
#include "rollout_worker/data_listener.h"

#include <catch2/catch.hpp>

#include "common/config/config.h"
#include "tandem/v1/config.pb.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;
using testing::Says;

const char* const kRolloutSocket = "unix:/run/rollout-0.sock";
const char* const kRolloutPort = "127.0.0.1:4711";

}  // namespace

TEST_CASE("a data listener is open where a trainer may be on another host, or is to act so") {
  v1::Config config = DefaultConfig();
  REQUIRE_FALSE(NeedsDataListener(config, kRolloutSocket));
  REQUIRE_FALSE(NeedsDataListener(config, kRolloutPort));
  config.mutable_trainer()->set_nnodes(2);
  REQUIRE_FALSE(NeedsDataListener(config, kRolloutSocket));
  REQUIRE(NeedsDataListener(config, kRolloutPort));
  config.mutable_trainer()->set_nnodes(1);
  config.mutable_cluster()->set_hybrid_engine(false);
  REQUIRE_FALSE(NeedsDataListener(config, kRolloutSocket));
  REQUIRE(NeedsDataListener(config, kRolloutPort));
  config = DefaultConfig();
  config.mutable_weight_sync()->set_transport("tcp");
  REQUIRE(NeedsDataListener(config, kRolloutSocket));
  REQUIRE(NeedsDataListener(config, kRolloutPort));
}

TEST_CASE("a data listener is on the interface of the rollout's calls") {
  v1::Config config = DefaultConfig();
  const WorkerFlags flags{.controller = "unix:/run/controller.sock"};
  auto none = ListenForSlots(config, kRolloutSocket, flags);
  REQUIRE(none.ok());
  REQUIRE(*none == nullptr);
  config.mutable_weight_sync()->set_transport("tcp");
  for (const char* address : {kRolloutSocket, kRolloutPort}) {
    const auto listener = ListenForSlots(config, address, flags);
    INFO(listener.status().ToString());
    REQUIRE(listener.ok());
    REQUIRE(Has((*listener)->address(), "127.0.0.1:"));
  }
  // Other hosts reach it, and nothing is encrypted.
  const WorkerFlags named{.controller = "127.0.0.1:1", .network = {.advertise = "localhost"}};
  const absl::Status open = ListenForSlots(config, "0.0.0.0:4711", named).status();
  REQUIRE(Says(open, "without TLS"));
  config.mutable_cluster()->set_data_tls(false);
  const auto allowed = ListenForSlots(config, "0.0.0.0:4711", named);
  INFO(allowed.status().ToString());
  REQUIRE(allowed.ok());
  REQUIRE(Has((*allowed)->address(), "localhost:"));
}

}  // namespace tandem
