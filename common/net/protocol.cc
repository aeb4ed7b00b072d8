#include "common/net/protocol.h"

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include <fmt/format.h>
#include <unistd.h>

#include "common/base/local_address.h"
#include "common/base/status.h"

namespace tandem {

absl::StatusOr<std::string> ReadBootId() {
  constexpr char kPath[] = "/proc/sys/kernel/random/boot_id";
  std::ifstream file(kPath);
  std::string id;
  if (!(file >> id)) return Internal("cannot read {}", kPath);
  return id;
}

absl::StatusOr<HostId> ThisHost(const std::string& node) {
  HostId host{.node = node};
  const char* const of_slurm = std::getenv("SLURMD_NODENAME");
  if (host.node.empty() && of_slurm != nullptr) host.node = of_slurm;
  if (host.node.empty()) {
    char name[HOST_NAME_MAX + 1] = {};
    if (gethostname(name, sizeof(name) - 1) != 0) return Internal("this host has no name");
    host.node = name;
  }
  if (!IsNodeName(host.node)) {
    return InvalidArgument(
        "\"{}\" is no name of a node: give --node with 1 to 253 letters, digits, dots, hyphens and "
        "underscores",
        host.node);
  }
  TANDEM_ASSIGN_OR_RETURN(host.boot_id, ReadBootId());
  return host;
}

std::string MakeBootNonce() {
  std::random_device device;
  std::string nonce;
  for (int word = 0; word < 4; ++word) nonce += fmt::format("{:08x}", device());
  return nonce;
}

namespace {

constexpr char kUnixScheme[] = "unix:";

}  // namespace

std::string UnixSocketDirectory(const std::string& address) {
  if (address.rfind(kUnixScheme, 0) != 0) return "";
  const std::filesystem::path path(address.substr(sizeof(kUnixScheme) - 1));
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

std::string WorkerListenAddress(const std::string& role,
                                int rank,
                                const std::string& listen,
                                const std::string& controller) {
  if (!listen.empty()) return listen;
  const std::string directory = UnixSocketDirectory(controller);
  const std::string path = fmt::format("{}/{}-{}.sock", directory, role, rank);
  if (!IsLocalAddress(controller)) return "0.0.0.0:0";
  if (directory.empty() || path.size() > kLongestSocketPath) return "127.0.0.1:0";
  return kUnixScheme + path;
}

}  // namespace tandem
