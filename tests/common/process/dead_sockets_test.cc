#include "common/process/files/dead_sockets.h"

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/process/local_socket.h"
#include "tests/support/temp_dir.h"

namespace tandem {

TEST_CASE("Own sockets at which nobody listens are removed, and nothing else", "[process]") {
  const testing::TempDir dir;
  const std::string live = dir.path() / "live.sock";
  const std::string dead = dir.path() / "dead.sock";
  const std::string other = dir.path() / "other.sock";
  const std::string file = dir.path() / "file.sock";
  const auto listener = ListenLocal(live);
  REQUIRE(listener.ok());
  // A process that is killed closes its socket and leaves the name.
  REQUIRE(ListenLocal(dead).ok());
  REQUIRE(ListenLocal(other).ok());
  std::ofstream(file) << "no socket";
  REQUIRE(std::filesystem::exists(dead));
  const auto ours = [](const std::string& name) { return name != "other.sock"; };
  RemoveDeadSockets(dir.path(), ours);
  REQUIRE_FALSE(std::filesystem::exists(dead));
  REQUIRE(std::filesystem::exists(live));
  REQUIRE(std::filesystem::exists(other));
  REQUIRE(std::filesystem::exists(file));
  RemoveDeadSockets(dir.path() / "missing", ours);
}

}  // namespace tandem
