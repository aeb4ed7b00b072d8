#include "common/process/files/dead_sockets.h"

#include <filesystem>
#include <system_error>

#include "common/process/local_socket.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

}  // namespace

void RemoveDeadSockets(const std::string& folder,
                       const std::function<bool(const std::string& name)>& ours) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    std::error_code unknown;
    if (!ours(path.filename()) || !entry->is_socket(unknown)) continue;
    if (NobodyListens(path.string()).value_or(false)) fs::remove(path, unknown);
  }
}

}  // namespace tandem
