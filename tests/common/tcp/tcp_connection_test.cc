#include "common/tcp/tcp_connection.h"

#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/tcp/tcp_address.h"
#include "tests/common/tcp/no_free_descriptor.h"
#include "tests/common/tcp/tcp_pair.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::ListenHere;
using testing::Meet;
using testing::Patiently;
using testing::Says;

// More than the sockets of both ends hold.
constexpr int64_t kMuch = 48 << 20;

std::string Pattern(int seed, int64_t bytes) {
  std::string data(static_cast<size_t>(bytes), ' ');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 31 + i / 977 + seed);
  return data;
}

// Sends `out` and receives as many bytes, on one thread, as a collective does.
absl::StatusOr<std::string> Exchange(TcpConnection& connection, const std::string& out) {
  std::string in(out.size(), ' ');
  const auto bytes = static_cast<int64_t>(out.size());
  for (int64_t sent = 0, came = 0; sent < bytes || came < bytes;) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t more_out,
                            connection.SendSome(out.data() + sent, bytes - sent));
    TANDEM_ASSIGN_OR_RETURN(const int64_t more_in,
                            connection.ReceiveSome(in.data() + came, bytes - came));
    sent += more_out;
    came += more_in;
    if (more_out > 0 || more_in > 0) continue;
    short events = came < bytes ? connection.receive_waits() : 0;
    if (sent < bytes) events = static_cast<short>(events | connection.send_waits());
    pollfd entry = {connection.fd(), events, 0};
    poll(&entry, 1, -1);
  }
  return in;
}

// The security of both ends, which tests try plain and with TLS.
struct Ends {
  testing::TempDir dir;
  TcpSecurity security;

  explicit Ends(bool tls) {
    if (!tls) return;
    const testing::Authority ours(dir.path(), "ours");
    security = testing::DataSecurity(ours.Issue("trainer", testing::NamesOf("trainer")));
  }
};

bool WithTls() { return GENERATE(false, true); }

}  // namespace

TEST_CASE("both directions at once carry more than the sockets hold") {
  const Ends ends(WithTls());
  const auto listener = ListenHere(ends.security);
  const auto pair = Meet(*listener, ends.security);
  REQUIRE(pair.dialled.ok());
  REQUIRE(pair.accepted.ok());
  const std::string there = Pattern(1, kMuch), back = Pattern(2, kMuch);
  absl::StatusOr<std::string> came;
  std::thread other([&] { came = Exchange(**pair.accepted, back); });
  const auto answered = Exchange(**pair.dialled, there);
  other.join();
  REQUIRE(answered.ok());
  REQUIRE(came.ok());
  // Not REQUIRE(a == b): a failure would print both.
  REQUIRE((*answered == back));
  REQUIRE((*came == there));
}

TEST_CASE("what was sent before the end is received, then the peer is gone") {
  const Ends ends(WithTls());
  const auto listener = ListenHere(ends.security);
  auto pair = Meet(*listener, ends.security);
  REQUIRE((*pair.dialled)->Send("last", 4, Patiently()).ok());
  REQUIRE(!(*pair.accepted)->closed());
  pair.dialled = absl::UnavailableError("gone");
  char said[4];
  REQUIRE((*pair.accepted)->Receive(said, 4, Patiently()).ok());
  REQUIRE(std::string(said, 4) == "last");
  const absl::Status status = (*pair.accepted)->Receive(said, 1, Patiently());
  REQUIRE(absl::IsUnavailable(status));
  REQUIRE(Says(status, "the peer has closed the connection"));
  REQUIRE(Says(status, "127.0.0.1:"));
  REQUIRE((*pair.accepted)->closed());
}

TEST_CASE("a peer that is killed is gone, and writing to it ends nothing else") {
  const Ends ends(WithTls());
  const auto listener = ListenHere(ends.security);
  const pid_t child = fork();
  if (child == 0) {
    const auto connection = DialTcp(testing::AddressOf(*listener), ends.security, Patiently());
    if (connection.ok()) kill(getpid(), SIGKILL);
    _exit(1);
  }
  const auto accepted = listener->Accept(Patiently());
  int ended = 0;
  REQUIRE(waitpid(child, &ended, 0) == child);
  REQUIRE(WIFSIGNALED(ended));
  REQUIRE(accepted.ok());
  char byte;
  REQUIRE(absl::IsUnavailable((*accepted)->Receive(&byte, 1, Patiently())));
  // Without MSG_NOSIGNAL the second write would end this process.
  const std::string data(1 << 20, 'x');
  absl::Status status;
  while (status.ok()) status = (*accepted)->Send(data.data(), 1 << 20, Patiently());
  REQUIRE(absl::IsUnavailable(status));
}

TEST_CASE("a silent peer ends a wait at its deadline") {
  const Ends ends(WithTls());
  const auto listener = ListenHere(ends.security);
  const auto pair = Meet(*listener, ends.security);
  char byte;
  const absl::Status late = (*pair.accepted)->Receive(&byte, 1, RealClock().Now());
  REQUIRE(absl::IsDeadlineExceeded(late));
  REQUIRE(Says(late, "0 of 1 bytes were received in time"));
  const std::string data(kMuch, 'x');
  const absl::Status full = (*pair.accepted)->Send(data.data(), kMuch, RealClock().Now());
  REQUIRE(absl::IsDeadlineExceeded(full));
  REQUIRE(Says(full, "were sent in time"));
  REQUIRE(absl::IsDeadlineExceeded(listener->Accept(RealClock().Now()).status()));
}

TEST_CASE("Shutdown from another thread ends what waits, at both ends") {
  const Ends ends(WithTls());
  const auto listener = ListenHere(ends.security);
  const auto pair = Meet(*listener, ends.security);
  absl::Status here, there;
  const auto wait = [](TcpConnection& connection, absl::Status* result) {
    char byte;
    *result = connection.Receive(&byte, 1, Patiently());
  };
  std::thread waits([&] { wait(**pair.dialled, &here); });
  std::thread waits_too([&] { wait(**pair.accepted, &there); });
  (*pair.dialled)->Shutdown();
  waits.join();
  waits_too.join();
  REQUIRE(absl::IsUnavailable(here));
  REQUIRE(Says(here, "ended here"));
  REQUIRE(absl::IsUnavailable(there));
  REQUIRE((*pair.dialled)->closed());
}

TEST_CASE("an address where nobody listens is unavailable") {
  std::string address;
  {
    const auto listener = ListenHere();
    address = testing::AddressOf(*listener);
  }
  const absl::Status status = DialTcp(address, {}, Patiently()).status();
  REQUIRE(absl::IsUnavailable(status));
  REQUIRE(Says(status, address));
}

TEST_CASE("an address that never answers leaves time for the next one") {
  // A port whose queue of connections is full drops what else comes.
  const UniqueFd full(socket(AF_INET, SOCK_STREAM, 0));
  ResolvedAddress mute = ResolveTcpAddress("127.0.0.1:0").value()[0];
  REQUIRE(bind(full.get(), mute.get(), mute.bytes) == 0);
  REQUIRE(listen(full.get(), 0) == 0);
  REQUIRE(getsockname(full.get(), reinterpret_cast<sockaddr*>(&mute.storage), &mute.bytes) == 0);
  std::vector<UniqueFd> queue;
  const auto soon = [] { return RealClock().Now() + absl::Milliseconds(200); };
  while (true) {
    auto one = ConnectToAny({mute}, "the mute one", soon());
    if (!one.ok()) break;
    queue.push_back(*std::move(one));
  }
  const auto listener = ListenHere();
  const auto answers = ResolveTcpAddress(testing::AddressOf(*listener)).value();
  const auto found = ConnectToAny({mute, answers[0]}, "both", RealClock().Now() + absl::Seconds(2));
  REQUIRE(found.ok());
  REQUIRE(PeerAddress(found->get()) == testing::AddressOf(*listener));
  REQUIRE(absl::IsDeadlineExceeded(ConnectToAny({mute}, "the mute one", soon()).status()));
}

TEST_CASE("a port that is taken, and a host that is another's, cannot be listened on") {
  const auto listener = ListenHere();
  const absl::Status taken = TcpListener::Listen(testing::AddressOf(*listener), {}).status();
  REQUIRE(absl::IsFailedPrecondition(taken));
  REQUIRE(Says(taken, testing::AddressOf(*listener)));
  REQUIRE(absl::IsFailedPrecondition(TcpListener::Listen("192.0.2.1:0", {}).status()));
}

TEST_CASE("a peer that speaks another protocol is passed over, and the next one is served") {
  const auto listener = ListenHere();
  const auto resolved = ResolveTcpAddress(testing::AddressOf(*listener)).value();
  for (const std::string said : {"GET / HTTP/1.1\r\n\r\n", ""}) {
    const UniqueFd stranger(socket(AF_INET, SOCK_STREAM, 0));
    REQUIRE(connect(stranger.get(), resolved[0].get(), resolved[0].bytes) == 0);
    REQUIRE(send(stranger.get(), said.data(), said.size(), 0) == static_cast<ssize_t>(said.size()));
    shutdown(stranger.get(), SHUT_WR);
    REQUIRE(absl::IsUnavailable(listener->Accept(Patiently()).status()));
  }
  REQUIRE(Meet(*listener).accepted.ok());
}

TEST_CASE("peers that connect and say nothing hold up nobody, and are dropped once they are late") {
  const Ends ends(WithTls());
  testing::FakeClock clock;  // else a slow machine would drop them before the last one is served
  const auto listener =
      TcpListener::Listen("127.0.0.1:0", ends.security, kPeerSilence, clock).value();
  const auto resolved = ResolveTcpAddress(testing::AddressOf(*listener)).value();
  std::vector<UniqueFd> strangers;
  for (const std::string said : {"", "", "\x16", "T"}) {  // the last two stop in the middle
    strangers.emplace_back(socket(AF_INET, SOCK_STREAM, 0));
    REQUIRE(connect(strangers.back().get(), resolved[0].get(), resolved[0].bytes) == 0);
    REQUIRE(send(strangers.back().get(), said.data(), said.size(), 0) ==
            static_cast<ssize_t>(said.size()));
  }
  // The one that begins as the listener's other kind of connection is refused, and it alone.
  REQUIRE(absl::IsPermissionDenied(listener->Accept(Patiently()).status()));
  REQUIRE(Meet(*listener, ends.security).accepted.ok());
  clock.Advance(kIntroduction);
  const auto later = DialTcp(testing::AddressOf(*listener), ends.security, Patiently());
  REQUIRE(later.ok());
  for (size_t i = 1; i < strangers.size(); ++i) {
    const absl::Status late = listener->Accept(Patiently()).status();
    INFO(late);
    REQUIRE(absl::IsUnavailable(late));
    REQUIRE((Says(late, "said nothing") || Says(late, "did not say in time who it is")));
  }
  REQUIRE(listener->Accept(Patiently()).ok());
}

TEST_CASE("connections whose peers left before anybody took them keep no other one away") {
  const auto listener = ListenHere();
  const std::string address = testing::AddressOf(*listener);
  std::vector<std::unique_ptr<TcpConnection>> gone;
  for (int i = 0; i < 256; ++i) {
    auto one = DialTcp(address, {}, Patiently());
    REQUIRE(one.ok());
    gone.push_back(*std::move(one));
  }
  gone.clear();
  // Nobody accepts meanwhile, and there was no room for more.
  const auto dialled = DialTcp(address, {}, Patiently());
  INFO(dialled.status());
  REQUIRE(dialled.ok());
  REQUIRE((*dialled)->Send("here", 4, Patiently()).ok());
  absl::Status came;
  do {  // some of those that left may still lie before it
    const auto accepted = listener->Accept(Patiently());
    REQUIRE(accepted.ok());
    char said[4];
    came = (*accepted)->Receive(said, 4, Patiently());
  } while (absl::IsUnavailable(came));
  REQUIRE(came.ok());
}

TEST_CASE("of the refusals that nobody asked for only the last ones are kept") {
  const auto listener = ListenHere();
  const auto resolved = ResolveTcpAddress(testing::AddressOf(*listener)).value();
  for (int i = 0; i < 300; ++i) {
    const UniqueFd stranger(socket(AF_INET, SOCK_STREAM, 0));
    REQUIRE(connect(stranger.get(), resolved[0].get(), resolved[0].bytes) == 0);
  }
  REQUIRE(DialTcp(testing::AddressOf(*listener), {}, Patiently()).ok());
  int refused = 0;
  while (!listener->Accept(Patiently()).ok()) ++refused;
  REQUIRE(refused == 16);
}

TEST_CASE("a want of descriptors that is over is told to nobody") {
  testing::FakeClock clock;
  const auto listener = TcpListener::Listen("127.0.0.1:0", {}, kPeerSilence, clock).value();
  const auto resolved = ResolveTcpAddress(testing::AddressOf(*listener)).value();
  const UniqueFd waits(socket(AF_INET, SOCK_STREAM, 0));
  {
    const testing::NoFreeDescriptor none;
    REQUIRE(connect(waits.get(), resolved[0].get(), resolved[0].bytes) == 0);
    pollfd entry = {listener->arrived_fd(), POLLIN, 0};
    REQUIRE(poll(&entry, 1, -1) == 1);
    REQUIRE(absl::IsResourceExhausted(listener->Accept(Patiently()).status()));
    REQUIRE(poll(&entry, 1, -1) == 1);  // it lasts
  }
  const auto dialled = DialTcp(testing::AddressOf(*listener), {}, Patiently());
  REQUIRE(dialled.ok());
  REQUIRE(listener->Accept(Patiently()).ok());
  REQUIRE(absl::IsDeadlineExceeded(listener->Accept(RealClock().Now()).status()));
}

TEST_CASE("of very many silent peers the first are dropped, and the next one is served") {
  const auto listener = ListenHere();
  const auto resolved = ResolveTcpAddress(testing::AddressOf(*listener)).value();
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.emplace_back(socket(AF_INET, SOCK_STREAM, 0));
    REQUIRE(connect(strangers.back().get(), resolved[0].get(), resolved[0].bytes) == 0);
  }
  const absl::Status dropped = listener->Accept(Patiently()).status();
  REQUIRE(absl::IsUnavailable(dropped));
  REQUIRE(Says(dropped, "said nothing"));
  const auto dialled = DialTcp(testing::AddressOf(*listener), {}, Patiently());
  REQUIRE(dialled.ok());
  while (true) {
    const auto accepted = listener->Accept(Patiently());
    if (accepted.ok()) break;
    REQUIRE(absl::IsUnavailable(accepted.status()));
  }
}

}  // namespace tandem
