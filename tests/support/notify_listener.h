// The receiving end of NOTIFY_SOCKET, where the service manager listens.
#pragma once

#include <string>

#include <catch2/catch.hpp>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/process/local_socket.h"
#include "tests/support/temp_dir.h"

namespace tandem::testing {

struct NotifyListener {
  TempDir dir;
  std::string path = dir.path() / "notify";
  UniqueFd fd{socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};

  NotifyListener() {
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

}  // namespace tandem::testing
