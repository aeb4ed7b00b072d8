#include "common/process/files/dead_sockets.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <sys/socket.h>
#include <sys/un.h>

#include "common/process/local_socket.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

bool NobodyListens(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) return false;
  std::memcpy(name.sun_path, path.data(), path.size());
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return false;
  const int result = connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name));
  return result != 0 && errno == ECONNREFUSED;
}

}  // namespace

void RemoveDeadSockets(const std::string& folder,
                       const std::function<bool(const std::string& name)>& ours) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    std::error_code unknown;
    if (!ours(path.filename()) || !entry->is_socket(unknown)) continue;
    if (NobodyListens(path.string())) fs::remove(path, unknown);
  }
}

}  // namespace tandem
