#include "common/net/listen_address.h"

#include <filesystem>

#include <fmt/format.h>

namespace tandem {
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
  if (directory.empty() || path.size() > kLongestSocketPath) return "127.0.0.1:0";
  return kUnixScheme + path;
}

}  // namespace tandem
