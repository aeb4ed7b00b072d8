#include "common/tcp/tcp_address.h"

#include <catch2/catch.hpp>

#include "tests/support/text.h"

namespace tandem {

TEST_CASE("an address is a host and a port, the host in brackets if it has colons") {
  const TcpAddress named = ParseTcpAddress("node-3.example:7001").value();
  REQUIRE(named.host == "node-3.example");
  REQUIRE(named.port == 7001);
  const TcpAddress v6 = ParseTcpAddress("[::1]:7").value();
  REQUIRE(v6.host == "::1");
  REQUIRE(v6.port == 7);
  for (const char* wrong : {"", ":7", "host", "host:", "host:x", "host:65536", "host:-1", "::1:7",
                            "[]:7", "unix:/tmp/x"}) {
    INFO(wrong);
    const absl::Status status = ParseTcpAddress(wrong).status();
    REQUIRE(absl::IsInvalidArgument(status));
    REQUIRE(testing::Says(status, "HOST:PORT"));
  }
}

TEST_CASE("a host that nobody knows is unavailable and named") {
  const absl::Status status = ResolveTcpAddress("no-such-host.invalid:7").status();
  REQUIRE(absl::IsUnavailable(status));
  REQUIRE(testing::Says(status, "no-such-host.invalid:7"));
}

}  // namespace tandem
