#include "controller/assembly/run_assembly.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/formats/files.h"
#include "controller/assembly/check_assembly.h"
#include "controller/assembly/train_assembly.h"

namespace tandem {
namespace {

// The time that a killed predecessor may take to release its memory and exit.
constexpr absl::Duration kLeaveTime = absl::Seconds(5);

// Two controllers in one directory would overwrite each other's files. The kernel releases the lock
// when the process ends, however it ends.
absl::Status LockRunDir(const std::string& run_dir) {
  TANDEM_RETURN_IF_ERROR(Annotate(MakeFolder(run_dir), "cluster.run_dir"));
  const std::string path = run_dir + "/controller.lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return MakeStatus(IoErrorCode(errno), "cannot open {}: {}", path, std::strerror(errno));
  }
  const absl::Time deadline = RealClock().Now() + kLeaveTime;
  bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  while (!locked && RealClock().Now() < deadline) {
    RealClock().Sleep(absl::Milliseconds(50));
    locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  }
  if (!locked) {
    return MakeStatus(absl::StatusCode::kAlreadyExists,
                      "another controller is at work in {}: stop it, or choose another "
                      "cluster.run_dir",
                      run_dir);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Assembly>> Assembly::Create(const AssemblyOptions& options) {
  TANDEM_RETURN_IF_ERROR(LockRunDir(options.config.cluster().run_dir()));
  return options.config.weight_sync().check_only() ? MakeCheckAssembly(options)
                                                   : MakeTrainAssembly(options);
}

}  // namespace tandem
