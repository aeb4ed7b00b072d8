// Which peers a data connection refuses, with certificates made here.
#include <array>
#include <filesystem>
#include <string>

#include <catch2/catch.hpp>
#include <sys/socket.h>

#include "common/base/status.h"
#include "common/process/local_socket.h"
#include "common/tcp/tcp_listener.h"
#include "common/tcp/tls_session.h"
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

// Two sessions over a pair of sockets, both ends on one thread.
struct SessionPair {
  SessionPair(const TcpSecurity& security, int64_t records_of_key) {
    std::array<int, 2> fds{};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) == 0);
    for (size_t i = 0; i < 2; ++i) {
      sockets[i].Reset(fds[i]);
      auto made = TlsSession::Create(security, i == 0 ? TlsSide::kDials : TlsSide::kAccepts, fds[i],
                                     "127.0.0.1", records_of_key);
      REQUIRE(made.ok());
      ends[i] = *std::move(made);
    }
    for (std::array<bool, 2> met{}; !met[0] || !met[1];) {
      for (size_t i = 0; i < 2; ++i) {
        const auto done = ends[i]->Handshake();
        INFO(done.status().ToString());
        REQUIRE(done.ok());
        met[i] = *done;
      }
    }
  }
  // Sends `sent` from one end to the other and returns what arrived.
  std::string Cross(size_t from, const std::string& sent) const {
    std::string came;
    std::array<char, 30'000> part{};
    for (int64_t at = 0; came.size() < sent.size();) {
      const auto went = ends[from]->Write(sent.data() + at, std::ssize(sent) - at);
      REQUIRE(went.ok());
      at += *went;
      const auto read = ends[1 - from]->Read(part.data(), std::ssize(part));
      REQUIRE(read.ok());
      came.append(part.data(), static_cast<size_t>(*read));
    }
    return came;
  }

  std::array<UniqueFd, 2> sockets;
  std::array<std::unique_ptr<TlsSession>, 2> ends;
};

// How many bytes go from an end until its socket is full, one at a time.
int64_t Fill(TlsSession& end) {
  int64_t bytes = 0;
  while (true) {
    const auto went = end.Write("x", 1);
    REQUIRE(went.ok());
    if (*went == 0) return bytes;
    ++bytes;
  }
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

TEST_CASE("an end changes its key after so many records, and the other one follows") {
  const TcpTlsFixture fixture;
  const SessionPair pair(fixture.Trainer(), /*records_of_key=*/3);
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += static_cast<char>(i % 251);
  // Both ways in turn: an end also changes its key while it reads what came under the other's.
  for (int turn = 1; turn <= 3; ++turn) {
    for (const size_t from : {0, 1}) {
      REQUIRE(pair.Cross(from, text) == text);
      // 200,000 bytes are 13 records of 16 KiB at least.
      REQUIRE(pair.ends[from]->key_changes() >= turn * 4);
    }
  }
  const SessionPair usual(fixture.Trainer(), kRecordsOfKey);
  REQUIRE(usual.Cross(0, text) == text);
  REQUIRE(usual.ends[0]->key_changes() == 0);
}

TEST_CASE("two ends that change their keys while both sockets are full read on") {
  const TcpTlsFixture fixture;
  // With one of these the socket is full just as the message that changes the key is due.
  for (const int64_t records_of_key : {1, 2, 3, 5, 7}) {
    const SessionPair pair(fixture.Trainer(), records_of_key);
    const std::array<int64_t, 2> sent = {Fill(*pair.ends[0]), Fill(*pair.ends[1])};
    INFO(records_of_key << " records of a key, " << sent[0] << " and " << sent[1] << " bytes");
    std::array<int64_t, 2> came{};
    for (const size_t at : {0, 1, 0}) {
      std::array<char, 1> byte{};
      while (true) {
        const auto read = pair.ends[at]->Read(byte.data(), 1);
        REQUIRE(read.ok());
        if (*read == 0) break;
        ++came[at];
      }
    }
    REQUIRE(came[0] == sent[1]);
    REQUIRE(came[1] == sent[0]);
    // What was held back goes first.
    for (const size_t from : {0, 1}) {
      REQUIRE(pair.ends[from]->key_changes() >= sent[from] / records_of_key);
      REQUIRE(pair.Cross(from, "xand on") == "xand on");
    }
  }
}

TEST_CASE("each end knows the other's identity") {
  const TcpTlsFixture fixture;
  const auto listener = ListenHere(fixture.Trainer());
  const auto pair = Meet(*listener, fixture.Issue(NamesOf("trainer/1")));
  REQUIRE(pair.dialled.ok());
  REQUIRE(pair.accepted.ok());
  REQUIRE((*pair.accepted)->identities().at(0).Uri() == "spiffe://tandem/demo/trainer/1");
  REQUIRE((*pair.dialled)->identities().at(0).Uri() == "spiffe://tandem/demo/trainer");
}

TEST_CASE("a peer of another role or another project is refused and told why") {
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
  const TcpTlsFixture fixture;
  const auto elsewhere = ListenHere(fixture.Issue("IP:192.0.2.1,URI:spiffe://tandem/demo/trainer"));
  RequireRefused(Meet(*elsewhere, fixture.Trainer()), "IP address mismatch");
}

TEST_CASE("an end without TLS and one with it refuse each other") {
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
