#include "common/process/local_socket.h"

#include <absl/time/clock.h>
#include <catch2/catch.hpp>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/support/patience.h"

namespace tandem {
namespace {

std::string SocketPath() { return "/tmp/tandem-local-" + std::to_string(getpid()) + ".sock"; }

}  // namespace

TEST_CASE(
    "nobody listens at a socket whose process has ended, and somebody where a queue is full") {
  const std::string path = SocketPath();
  REQUIRE(NobodyListens(path).value() == false);  // there is no socket
  {
    auto listener = ListenLocal(path);
    REQUIRE(listener.ok());
    REQUIRE(listen(listener->get(), 0) == 0);  // a queue of one
    const auto waiting = ConnectLocal(path);
    REQUIRE(waiting.ok());
    for (int i = 0; i < 3; ++i) REQUIRE(NobodyListens(path).value() == false);
  }
  REQUIRE(NobodyListens(path).value() == true);
  unlink(path.c_str());
  REQUIRE(absl::IsInvalidArgument(NobodyListens(std::string(200, 'x')).status()));
}

TEST_CASE("a descriptor crosses a socket with its message") {
  auto listener = ListenLocal(SocketPath());
  REQUIRE(listener.ok());
  auto client = ConnectLocal(SocketPath());
  REQUIRE(client.ok());
  const UniqueFd file(memfd_create("passed", MFD_CLOEXEC));
  REQUIRE(ftruncate(file.get(), 4096) == 0);
  const int64_t sent = 42;
  REQUIRE(SendMessage(client->get(), &sent, sizeof(sent), file.get()).ok());

  const Instant deadline = RealClock().Now() + testing::kPatience;
  auto server = AcceptLocal(listener->get(), deadline);
  REQUIRE(server.ok());
  int64_t received = 0;
  UniqueFd fd;
  REQUIRE(ReceiveMessage(server->get(), &received, sizeof(received), deadline, &fd).ok());
  REQUIRE(received == 42);
  struct stat passed = {};
  REQUIRE(fstat(fd.get(), &passed) == 0);
  REQUIRE(passed.st_size == 4096);

  REQUIRE(!PeerClosed(server->get()));
  client->Reset();
  REQUIRE(PeerClosed(server->get()));
  REQUIRE(ReceiveMessage(server->get(), &received, 8, deadline).code() ==
          absl::StatusCode::kUnavailable);
  unlink(SocketPath().c_str());
}

TEST_CASE("waiting for a connection or a message ends at the deadline") {
  auto listener = ListenLocal(SocketPath());
  REQUIRE(listener.ok());
  REQUIRE(AcceptLocal(listener->get(), RealClock().Now()).status().code() ==
          absl::StatusCode::kDeadlineExceeded);
  auto client = ConnectLocal(SocketPath());
  REQUIRE(client.ok());
  char byte = 0;
  REQUIRE(ReceiveMessage(client->get(), &byte, 1, RealClock().Now()).code() ==
          absl::StatusCode::kDeadlineExceeded);
  unlink(SocketPath().c_str());
}

TEST_CASE("a process without a free descriptor is told so instead of trying for ever") {
  auto listener = ListenLocal(SocketPath());
  auto client = ConnectLocal(SocketPath());
  REQUIRE(client.ok());
  rlimit limit = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  rlimit none = limit;
  none.rlim_cur = static_cast<rlim_t>(client->get()) + 1;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const absl::Status status =
      AcceptLocal(listener->get(), RealClock().Now() + testing::kPatience).status();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  unlink(SocketPath().c_str());
}

TEST_CASE("a socket that nobody listens on is unavailable and a long path is refused") {
  REQUIRE(ConnectLocal("/tmp/tandem-nobody.sock").status().code() ==
          absl::StatusCode::kUnavailable);
  REQUIRE(ListenLocal("/tmp/" + std::string(200, 'x')).status().code() ==
          absl::StatusCode::kInvalidArgument);
}

}  // namespace tandem
