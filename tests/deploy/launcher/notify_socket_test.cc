#include "deploy/launcher/notify_socket.h"

#include <cstdlib>

#include <catch2/catch.hpp>

#include "common/process/service_notifier.h"
#include "tests/fakes/fake_clock.h"

namespace tandem {
namespace {

TEST_CASE("the launcher hears its controller's signs of life, and only those") {
  NotifySocket socket = NotifySocket::Open().value();
  REQUIRE_FALSE(socket.TakeSignOfLife());
  setenv("NOTIFY_SOCKET", socket.name().c_str(), 1);
  setenv("WATCHDOG_USEC", "3000000", 1);
  testing::FakeClock clock;
  ServiceNotifier notifier(clock);
  notifier.Ready();
  REQUIRE_FALSE(socket.TakeSignOfLife());
  notifier.KeepAlive();
  REQUIRE(socket.TakeSignOfLife());
  REQUIRE_FALSE(socket.TakeSignOfLife());
}

}  // namespace
}  // namespace tandem
