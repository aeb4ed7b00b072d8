#include "common/process/files/socket_file.h"

#include <filesystem>

#include <catch2/catch.hpp>

#include "common/process/local_socket.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

TEST_CASE("a socket's file goes with its owner, and one of a successor at its path stays") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "pair.sock";
  const UniqueFd first = ListenLocal(path).value();
  {
    const SocketFile owner(path);
    REQUIRE(std::filesystem::exists(path));
  }
  REQUIRE_FALSE(std::filesystem::exists(path));

  const UniqueFd again = ListenLocal(path).value();
  const SocketFile old(path);
  const UniqueFd successor = ListenLocal(path).value();
  old.Remove();
  REQUIRE(ConnectLocal(path).ok());
}

}  // namespace
}  // namespace tandem
