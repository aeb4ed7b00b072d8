#include "controller/assembly/run_assembly.h"

#include <utility>

#include "common/base/status.h"
#include "common/process/files/private_files.h"
#include "controller/assembly/check_assembly.h"
#include "controller/assembly/train_assembly.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// The time that a killed predecessor may take to release its memory and exit.
constexpr absl::Duration kLeaveTime = absl::Seconds(5);

// Two controllers in one directory would overwrite each other's files.
absl::Status Lock(const std::string& key,
                  const std::string& directory,
                  std::vector<DirectoryLock>* locks) {
  absl::StatusOr<DirectoryLock> lock =
      DirectoryLock::Take(directory, kControllerLock, "a controller",
                          "stop that run, or choose another " + key, kLeaveTime);
  if (!lock.ok()) return Annotate(lock.status(), key);
  locks->push_back(*std::move(lock));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Assembly>> Assembly::Create(const AssemblyOptions& options) {
  const v1::Config& config = options.config;
  TANDEM_RETURN_IF_ERROR(
      Annotate(MakePrivateFolder(config.cluster().run_dir()), "cluster.run_dir"));
  std::vector<DirectoryLock> locks;
  TANDEM_RETURN_IF_ERROR(Lock("cluster.run_dir", config.cluster().run_dir(), &locks));
  const bool trains = !config.weight_sync().check_only();
  if (trains) {
    TANDEM_RETURN_IF_ERROR(
        Lock("trainer.default_local_dir", config.trainer().default_local_dir(), &locks));
  }
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Assembly> assembly,
                          trains ? MakeTrainAssembly(options) : MakeCheckAssembly(options));
  assembly->locks_ = std::move(locks);
  return assembly;
}

}  // namespace tandem
