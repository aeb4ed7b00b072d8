#include <catch2/catch.hpp>

#include "common/base/local_address.h"
#include "common/net/channel.h"

namespace tandem {

TEST_CASE("Listening beyond this host without mutual TLS is refused with the remedy", "[rpc]") {
  const auto result = MakeServerCredentials("0.0.0.0:5000", {});
  REQUIRE(absl::IsInvalidArgument(result.status()));
  const std::string message(result.status().message());
  REQUIRE(message.find("cluster.tls.cert") != std::string::npos);
  REQUIRE(message.find("127.0.0.1") != std::string::npos);
  REQUIRE(absl::IsInvalidArgument(MakeChannelCredentials("node7:5000", {}).status()));
}

TEST_CASE("A TLS file that cannot be read is named", "[rpc]") {
  const auto result = MakeServerCredentials(
      "0.0.0.0:5000", {.cert = "/nonexistent/cert.pem", .key = "k", .ca = "c"});
  REQUIRE(absl::IsNotFound(result.status()));
  REQUIRE(std::string(result.status().message()).find("/nonexistent/cert.pem") !=
          std::string::npos);
}

TEST_CASE("Loopback and Unix sockets need no TLS", "[rpc]") {
  for (const char* address : {"unix:/tmp/x.sock", "127.0.0.1:0", "localhost:80", "[::1]:0"}) {
    REQUIRE(IsLocalAddress(address));
    REQUIRE(MakeServerCredentials(address, {.open_to_this_host = true}).ok());
    const bool is_socket = std::string(address).starts_with("unix:");
    const absl::Status open = MakeServerCredentials(address, {}).status();
    REQUIRE(open.ok() == is_socket);
    if (!is_socket) REQUIRE(std::string(open.message()).find("--token-file") != std::string::npos);
  }
  for (const char* address : {"127.8.0.1:0", "[0:0:0:0:0:0:0:1]:0", "[0::1]:0", "[::0001]:0",
                              "[::ffff:127.0.0.1]:0", "[::FFFF:7f08:1]:0"}) {
    INFO(address);
    REQUIRE(IsLocalAddress(address));
  }
  for (const char* address :
       {"0.0.0.0:0", "10.0.0.1:0", "127.example.org:80", "127.0.0.1", "", "[::]:0", "[::2]:0",
        "[fd00::1]:0", "[::ffff:10.0.0.1]:0", "[localhost]:0", "[::1", "[]:0"}) {
    INFO(address);
    REQUIRE_FALSE(IsLocalAddress(address));
  }
}

}  // namespace tandem
