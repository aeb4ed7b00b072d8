#include "common/process/files/sync_folder.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/progress.h"
#include "common/process/local_socket.h"

namespace tandem {

int SyncFolder(const std::string& folder) {
  const UniqueFd fd(
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return errno;
  const OutsideWait wait;  // a slow disk is no hang
  return fsync(fd.get()) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

}  // namespace tandem
