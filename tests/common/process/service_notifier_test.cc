#include "common/process/service_notifier.h"

#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/process/local_socket.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

// The receiving end of NOTIFY_SOCKET.
struct Listener {
  testing::TempDir dir;
  std::string path = dir.path() / "notify";
  UniqueFd fd{socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};

  Listener() {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    path.copy(name.sun_path, sizeof(name.sun_path) - 1);
    REQUIRE(bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0);
  }
  // The next message, "" if there is none.
  std::string Take() const {
    char message[64];
    const ssize_t bytes = recv(fd.get(), message, sizeof(message), 0);
    return bytes < 0 ? "" : std::string(message, static_cast<size_t>(bytes));
  }
};

TEST_CASE("A notifier speaks sd_notify's protocol, three times within the watchdog's time",
          "[notify]") {
  const Listener listener;
  testing::FakeClock clock;
  setenv("NOTIFY_SOCKET", listener.path.c_str(), 1);
  setenv("WATCHDOG_USEC", "30000000", 1);
  ServiceNotifier notifier(clock);
  REQUIRE(std::getenv("NOTIFY_SOCKET") == nullptr);
  REQUIRE(std::getenv("WATCHDOG_USEC") == nullptr);
  notifier.Ready();
  REQUIRE(listener.Take() == "READY=1");
  notifier.KeepAlive();
  notifier.KeepAlive();
  REQUIRE(listener.Take() == "WATCHDOG=1");
  REQUIRE(listener.Take() == "");
  clock.Advance(absl::Seconds(9));
  notifier.KeepAlive();
  REQUIRE(listener.Take() == "");
  clock.Advance(absl::Seconds(1));
  notifier.KeepAlive();
  REQUIRE(listener.Take() == "WATCHDOG=1");
  notifier.Stopping();
  REQUIRE(listener.Take() == "STOPPING=1");
}

TEST_CASE("A notifier says nothing of a watchdog that is not for this process", "[notify]") {
  const Listener listener;
  testing::FakeClock clock;
  setenv("NOTIFY_SOCKET", listener.path.c_str(), 1);
  setenv("WATCHDOG_USEC", "30000000", 1);
  setenv("WATCHDOG_PID", "1", 1);
  ServiceNotifier notifier(clock);
  notifier.KeepAlive();
  REQUIRE(listener.Take() == "");
  notifier.Ready();
  REQUIRE(listener.Take() == "READY=1");
}

TEST_CASE("A notifier without a socket, or with one that has gone, does nothing", "[notify]") {
  testing::FakeClock clock;
  ServiceNotifier silent(clock);
  silent.Ready();
  silent.KeepAlive();
  setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
  ServiceNotifier unheard(clock);
  unheard.Ready();
  REQUIRE(std::getenv("NOTIFY_SOCKET") == nullptr);
}

}  // namespace
}  // namespace tandem
