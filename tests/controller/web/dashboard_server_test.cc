#include "controller/web/dashboard_server.h"

#include <filesystem>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "common/formats/files.h"
#include "tests/common/http/http_exchange.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::BodyOf;
using testing::Has;
using testing::HttpConnection;
using testing::Says;

int PortIn(const std::string& address) {
  return std::stoi(address.substr(address.find(':', std::string("http:").size()) + 1));
}

std::string TokenIn(const std::string& address) { return address.substr(address.find("#t=") + 3); }

}  // namespace

TEST_CASE("The address that is printed opens the dashboard", "[web]") {
  const testing::TempDir dir;
  const std::string token_file = dir.path() / "ui.token";
  {
    const auto server =
        DashboardServer::Start({dir.path()}, "127.0.0.1:0", token_file, RealClock()).value();
    const std::string address = server->Address();
    REQUIRE(address.starts_with("http://127.0.0.1:"));
    HttpConnection connection(PortIn(address));
    REQUIRE(Has(connection.Get("/"), "HTTP/1.1 200"));
    REQUIRE(Has(connection.Get("/api/v1/runs"), "HTTP/1.1 401"));
    const std::string token = TokenIn(address);
    REQUIRE(token == ReadWholeFile(token_file).value().substr(0, token.size()));
    REQUIRE(std::filesystem::status(token_file).permissions() ==
            (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    REQUIRE(BodyOf(connection.Get("/api/v1/runs", "Authorization: Bearer " + token + "\r\n")) ==
            R"({"runs":[]})");
    connection.Send(
        fmt::format("POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                    "application/json\r\nAuthorization: Bearer {}\r\nContent-Length: 2\r\n\r\n{{}}",
                    token));
    const std::string begun = connection.Receive();
    REQUIRE(Has(begun, "HTTP/1.1 204"));
    const size_t cookie = begun.find("Set-Cookie: ") + std::string("Set-Cookie: ").size();
    const std::string pair = begun.substr(cookie, begun.find(';', cookie) - cookie);
    REQUIRE(Has(connection.Get("/api/v1/runs", "Cookie: " + pair + "\r\n"), "HTTP/1.1 200"));
  }
  REQUIRE_FALSE(std::filesystem::exists(token_file));
}

TEST_CASE("The dashboard listens to this host alone", "[web]") {
  const auto error_of = [](const std::string& listen) {
    return DashboardServer::Start({}, listen, "", RealClock()).status();
  };
  REQUIRE(absl::IsInvalidArgument(error_of("0.0.0.0:8000")));
  REQUIRE(Says(error_of("0.0.0.0:8000"), "ssh -L 8000:127.0.0.1:8000"));
  REQUIRE(absl::IsInvalidArgument(error_of("example.org:80")));
  REQUIRE(absl::IsInvalidArgument(error_of("8000")));
  REQUIRE(absl::IsInvalidArgument(error_of("127.0.0.1:70000")));
}

TEST_CASE("A port that is taken is an error by name, and auto takes the next", "[web]") {
  const auto first = DashboardServer::Start({}, "auto", "", RealClock()).value();
  const auto second = DashboardServer::Start({}, "auto", "", RealClock()).value();
  REQUIRE(PortIn(first->Address()) != PortIn(second->Address()));
  const std::string taken = fmt::format("127.0.0.1:{}", PortIn(first->Address()));
  const absl::Status refused = DashboardServer::Start({}, taken, "", RealClock()).status();
  REQUIRE(absl::IsUnavailable(refused));
  REQUIRE(Says(refused, "cannot listen on 127.0.0.1, port"));
}

}  // namespace tandem
