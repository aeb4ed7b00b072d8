#include "controller/web/access.h"

#include <string>

#include <catch2/catch.hpp>

#include "tests/fakes/fake_clock.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;

const std::string kToken(64, 'a'), kSession(64, 'b');

HttpRequest Ask(std::map<std::string, std::string> headers, const std::string& method = "GET") {
  HttpRequest request;
  request.method = method;
  request.path = "/api/v1/runs";
  request.headers = std::move(headers);
  request.headers.emplace("host", "127.0.0.1:7460");
  return request;
}

int StatusOf(const std::optional<HttpResponse>& refusal) { return refusal ? refusal->status : 0; }

}  // namespace

TEST_CASE("Data needs the token, or the cookie that the token was exchanged for", "[web]") {
  testing::FakeClock clock;
  DashboardAccess access(kToken, kSession, clock);
  REQUIRE(StatusOf(access.RefuseUnknown(Ask({}))) == 401);
  REQUIRE(StatusOf(access.RefuseUnknown(Ask({{"authorization", "Bearer " + kToken}}))) == 0);
  REQUIRE(StatusOf(access.RefuseUnknown(Ask({{"authorization", "Bearer " + kSession}}))) == 401);
  REQUIRE(StatusOf(access.RefuseUnknown(Ask({{"authorization", kToken}}))) == 401);

  const HttpResponse refused = access.BeginSession(Ask({{"authorization", "Bearer x"}}, "POST"));
  REQUIRE(refused.status == 401);
  REQUIRE(refused.headers.empty());
  const HttpResponse begun =
      access.BeginSession(Ask({{"authorization", "Bearer " + kToken}}, "POST"));
  REQUIRE(begun.status == 204);
  const std::string cookie = begun.headers.front().second;
  REQUIRE(begun.headers.front().first == "Set-Cookie");
  REQUIRE(Has(cookie, "; HttpOnly; SameSite=Strict; Path=/"));
  REQUIRE_FALSE(Has(cookie, kToken));
  const std::string pair = cookie.substr(0, cookie.find(';'));
  REQUIRE(StatusOf(access.RefuseUnknown(Ask({{"cookie", "other=1; " + pair}}))) == 0);
  REQUIRE(StatusOf(access.RefuseUnknown(Ask({{"cookie", pair + "c"}}))) == 401);
  REQUIRE(StatusOf(access.RefuseUnknown(Ask({{"cookie", "x" + pair}}))) == 401);
}

TEST_CASE("Who guesses tokens is told to wait; who has the right one is not", "[web]") {
  testing::FakeClock clock;
  DashboardAccess access(kToken, kSession, clock);
  const HttpRequest wrong = Ask({{"authorization", "Bearer wrong"}});
  for (int i = 0; i < DashboardAccess::kMostFailures; ++i) {
    REQUIRE(StatusOf(access.RefuseUnknown(wrong)) == 401);
  }
  REQUIRE(StatusOf(access.RefuseUnknown(wrong)) == 429);
  REQUIRE(StatusOf(access.RefuseUnknown(Ask({{"authorization", "Bearer " + kToken}}))) == 0);
  REQUIRE(StatusOf(access.RefuseUnknown(Ask({}))) == 401);  // a page that is not logged in
  clock.Advance(absl::Seconds(1));
  REQUIRE(StatusOf(access.RefuseUnknown(wrong)) == 401);
}

TEST_CASE("The dashboard answers to names of this host alone", "[web]") {
  testing::FakeClock clock;
  const DashboardAccess access(kToken, kSession, clock);
  for (const char* host : {"127.0.0.1", "localhost:8000", "LocalHost", "[::1]:7460", "[::1]"}) {
    INFO(host);
    REQUIRE(StatusOf(access.RefuseStranger(Ask({{"host", host}}))) == 0);
  }
  for (const char* host :
       {"", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "[::2]:7460",
        "[", "127.0.0.1@evil.example"}) {
    INFO(host);
    REQUIRE(StatusOf(access.RefuseStranger(Ask({{"host", host}}))) == 421);
  }
}

TEST_CASE("A page of another site can have nothing changed", "[web]") {
  testing::FakeClock clock;
  const DashboardAccess access(kToken, kSession, clock);
  const auto post = [&](std::map<std::string, std::string> headers) {
    headers.emplace("content-type", "application/json");
    return StatusOf(access.RefuseStranger(Ask(std::move(headers), "POST")));
  };
  REQUIRE(post({}) == 0);  // a script
  REQUIRE(post({{"origin", "http://127.0.0.1:7460"}, {"sec-fetch-site", "same-origin"}}) == 0);
  REQUIRE(post({{"origin", "http://127.0.0.1:8000"}}) == 403);  // another program of this host
  REQUIRE(post({{"origin", "null"}}) == 403);
  REQUIRE(post({{"sec-fetch-site", "cross-site"}}) == 403);
  REQUIRE(post({{"sec-fetch-site", "same-site"}}) == 403);
  REQUIRE(post({{"content-type", "text/plain"}}) == 415);
  REQUIRE(StatusOf(access.RefuseStranger(Ask({}, "DELETE"))) == 405);
}

}  // namespace tandem
