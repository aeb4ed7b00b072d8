// Which peers a data connection refuses, with certificates made here.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "common/tcp/tcp_listener.h"
#include "tests/common/tcp/tcp_pair.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Authority;
using testing::DataSecurity;
using testing::ListenHere;
using testing::Meet;
using testing::NamesOf;
using testing::Says;
using testing::TcpPair;

struct TcpTlsFixture {
  testing::TempDir dir;
  Authority ours{dir.path(), "ours"};

  TcpSecurity Trainer(const std::string& name = "trainer") const {
    return DataSecurity(ours.Issue(name, NamesOf("trainer")));
  }
  TcpSecurity Issue(const std::string& names, int days = 2) const {
    return DataSecurity(ours.Issue("other", names, days));
  }
};

void SkipWithoutOpenSslProgram() {
  if (testing::HasOpenSsl()) return;
  std::fputs("skipped: the openssl program is not installed\n", stderr);
  std::exit(77);
}

// Both ends know that there is no connection, and at least one of them says `why`.
void RequireRefused(const TcpPair& pair, const std::string& why) {
  const absl::Status dialled = pair.dialled.status(), accepted = pair.accepted.status();
  INFO("dials: " << dialled.ToString());
  INFO("accepts: " << accepted.ToString());
  REQUIRE(!dialled.ok());
  REQUIRE(!accepted.ok());
  REQUIRE((absl::IsPermissionDenied(dialled) || absl::IsPermissionDenied(accepted)));
  REQUIRE((Says(dialled, why) || Says(accepted, why)));
}

}  // namespace

TEST_CASE("each end knows the other's identity") {
  SkipWithoutOpenSslProgram();
  const TcpTlsFixture fixture;
  const auto listener = ListenHere(fixture.Trainer());
  const auto pair = Meet(*listener, fixture.Issue(NamesOf("trainer/1")));
  REQUIRE(pair.dialled.ok());
  REQUIRE(pair.accepted.ok());
  REQUIRE((*pair.accepted)->identities().at(0).Uri() == "spiffe://tandem/demo/trainer/1");
  REQUIRE((*pair.dialled)->identities().at(0).Uri() == "spiffe://tandem/demo/trainer");
}

TEST_CASE("a peer of another role or another project is refused and told why") {
  SkipWithoutOpenSslProgram();
  const TcpTlsFixture fixture;
  const auto listener = ListenHere(fixture.Trainer());
  for (const std::string& names :
       {NamesOf("user"), NamesOf("trainer", "else"), std::string("IP:127.0.0.1")}) {
    const TcpPair pair = Meet(*listener, fixture.Issue(names));
    REQUIRE(absl::IsPermissionDenied(pair.dialled.status()));
    REQUIRE(absl::IsPermissionDenied(pair.accepted.status()));
    for (const absl::Status& status : {pair.dialled.status(), pair.accepted.status()}) {
      INFO(status.ToString());
      REQUIRE(Says(status, "a data connection is for the role trainer of project demo"));
    }
  }
  // The other way round: who dials looks as well.
  const auto users = ListenHere(fixture.Issue(NamesOf("user")));
  RequireRefused(Meet(*users, fixture.Trainer()), "has spiffe://tandem/demo/user");
  // The listener serves on.
  REQUIRE(Meet(*listener, fixture.Trainer()).accepted.ok());
}

TEST_CASE("certificates of another authority, and those that have expired, are refused") {
  SkipWithoutOpenSslProgram();
  const TcpTlsFixture fixture;
  const auto listener = ListenHere(fixture.Trainer());
  const Authority theirs(fixture.dir.path(), "theirs");
  TcpSecurity foreign = DataSecurity(theirs.Issue("trainer", NamesOf("trainer")));
  foreign.ca = fixture.ours.ca();
  RequireRefused(Meet(*listener, foreign), "unknown ca");
  const TcpSecurity expired = fixture.Issue(NamesOf("trainer"), -1);
  RequireRefused(Meet(*listener, expired), "certificate has expired");
  const auto stale = ListenHere(expired);
  RequireRefused(Meet(*stale, fixture.Trainer()), "certificate has expired");
}

TEST_CASE("a certificate of another host is refused by who dials") {
  SkipWithoutOpenSslProgram();
  const TcpTlsFixture fixture;
  const auto elsewhere = ListenHere(fixture.Issue("IP:192.0.2.1,URI:spiffe://tandem/demo/trainer"));
  RequireRefused(Meet(*elsewhere, fixture.Trainer()), "IP address mismatch");
}

TEST_CASE("an end without TLS and one with it refuse each other") {
  SkipWithoutOpenSslProgram();
  const TcpTlsFixture fixture;
  const auto secure = ListenHere(fixture.Trainer());
  const TcpPair plain = Meet(*secure, {});
  REQUIRE(absl::IsPermissionDenied(plain.dialled.status()));
  REQUIRE(absl::IsPermissionDenied(plain.accepted.status()));
  RequireRefused(plain, "the port wants TLS");
  const auto open = ListenHere();
  const TcpPair tls = Meet(*open, fixture.Trainer());
  REQUIRE(absl::IsPermissionDenied(tls.dialled.status()));
  RequireRefused(tls, "the peer speaks TLS and this process has no certificate");
}

TEST_CASE("files are read for each connection, so that certificates can be replaced") {
  SkipWithoutOpenSslProgram();
  const TcpTlsFixture fixture;
  const TcpSecurity dials = fixture.Trainer("dials");
  const TcpSecurity expired = fixture.Issue(NamesOf("trainer"), -1);
  const auto listener = ListenHere(expired);
  REQUIRE(!Meet(*listener, dials).dialled.ok());
  const TcpSecurity fresh = fixture.Trainer("fresh");
  std::filesystem::rename(fresh.cert, expired.cert);
  std::filesystem::rename(fresh.key, expired.key);
  REQUIRE(Meet(*listener, dials).dialled.ok());
}

TEST_CASE("files that TLS cannot use are named before a peer comes") {
  SkipWithoutOpenSslProgram();
  const TcpTlsFixture fixture;
  TcpSecurity security = fixture.Trainer();
  security.key = fixture.Trainer("second").key;
  const absl::Status wrong_key = TcpListener::Listen("127.0.0.1:0", security).status();
  REQUIRE(absl::IsInvalidArgument(wrong_key));
  REQUIRE(Says(wrong_key, security.key));
  security = fixture.Trainer("third");
  security.ca = "/nowhere/ca.pem";
  const absl::Status no_authority = TcpListener::Listen("127.0.0.1:0", security).status();
  REQUIRE(absl::IsInvalidArgument(no_authority));
  REQUIRE(Says(no_authority, "/nowhere/ca.pem"));
}

}  // namespace tandem
