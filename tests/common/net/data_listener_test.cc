#include "common/net/addresses/data_listener.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/support/free_port.h"
#include "tests/support/text.h"

namespace tandem {

using testing::Says;

TEST_CASE("Data comes to the host of a worker's server, on a port of its own", "[cluster]") {
  const auto data = ListenForData({.server = "127.0.0.1:4711", .controller = "127.0.0.1:1"});
  REQUIRE(data.ok());
  REQUIRE(data->address == fmt::format("127.0.0.1:{}", data->listener->port()));
  REQUIRE(data->listener->port() != 4711);
  // Beside a Unix socket it is this host's own, as there is no TLS.
  const auto local = ListenForData({.server = "unix:/run/trainer-0.sock", .controller = "unix:/c"});
  REQUIRE(local.ok());
  REQUIRE(local->address.starts_with("127.0.0.1:"));
  const auto named = ListenForData({.server = "127.0.0.1:4711",
                                    .network = {.advertise = "node-7"},
                                    .controller = "127.0.0.1:1"});
  REQUIRE(named->address == fmt::format("node-7:{}", named->listener->port()));
}

TEST_CASE("Data listeners take the ports of a range until none is left", "[cluster]") {
  const int first = testing::FreePort("127.0.0.1");
  const DataListenOptions options{.server = "127.0.0.1:4711",
                                  .first_port = first,
                                  .last_port = first,
                                  .controller = "127.0.0.1:1"};
  const auto one = ListenForData(options);
  REQUIRE(one.ok());
  REQUIRE(one->listener->port() == first);
  const absl::Status none = ListenForData(options).status();
  REQUIRE(absl::IsResourceExhausted(none));
  REQUIRE(Says(none, fmt::format("no port of {} to {}", first, first)));
  DataListenOptions wider = options;
  wider.last_port = first + 100;
  const auto next = ListenForData(wider);
  REQUIRE(next.ok());
  REQUIRE(next->listener->port() > first);
}

TEST_CASE("Without TLS no data is taken from other hosts", "[cluster]") {
  const absl::Status open =
      ListenForData({.server = "0.0.0.0:4711", .controller = "127.0.0.1:1"}).status();
  REQUIRE(absl::IsInvalidArgument(open));
  REQUIRE(Says(open, "without TLS"));
  REQUIRE_FALSE(DataSecurity({.token_file = "/token"}, {"trainer"})->enabled());
}

}  // namespace tandem
