// OpenCuda() of the programs that tests run on the emulator. TANDEM_EMULATED_CUDA_MIB: how much
// memory each process's device has. TANDEM_EMULATED_CUDA_REFUSED: a call (of EmulatedCuda) that the
// system does not permit each process the first time. TANDEM_EMULATED_LATE: OptionsFromEnvironment.
// TANDEM_EMULATED_LOSS=<program>:<call>:<skipped>:<marker>: the device of the program is lost at
// that call (EmulatedCuda::FailCall); where the file `marker` exists already nothing happens, so
// that a restarted process lives.
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <absl/strings/str_split.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/status.h"
#include "tests/emulator/emulated_cuda.h"

namespace tandem {
namespace {

// Whether this process is the one that made the file: it may open its device more than once.
bool IsFirst(const std::string& marker) {
  const std::string self = std::to_string(getpid());
  const int made = open(marker.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (made < 0) {
    std::string owner;
    std::ifstream(marker) >> owner;
    return owner == self;
  }
  const bool written = write(made, self.data(), self.size()) == std::ssize(self);
  close(made);
  return written;
}

void PlanLoss(const std::string& plan, emulator::EmulatedCuda* cuda) {
  const std::vector<std::string> parts = absl::StrSplit(plan, absl::MaxSplits(':', 3));
  TANDEM_CHECK(parts.size() == 4, "TANDEM_EMULATED_LOSS is not program:call:skipped:marker");
  if (parts[0] != program_invocation_short_name) return;
  if (!IsFirst(parts[3])) return;
  cuda->FailCall(
      parts[1],
      WithDeviceLost(Internal("cudaErrorIllegalAddress (700): the device was lost on purpose")),
      std::atoi(parts[2].c_str()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaApi>> OpenCuda() {
  emulator::EmulatedCudaOptions options = emulator::OptionsFromEnvironment();
  options.devices = 8;
  const char* const mebibytes = std::getenv("TANDEM_EMULATED_CUDA_MIB");
  if (mebibytes != nullptr) options.total_bytes = std::strtoll(mebibytes, nullptr, 10) << 20;
  auto cuda = std::make_unique<emulator::EmulatedCuda>(options);
  const char* const refused = std::getenv("TANDEM_EMULATED_CUDA_REFUSED");
  if (refused != nullptr) cuda->FailCall(refused, FailedPrecondition("cudaErrorNotPermitted"));
  const char* const loss = std::getenv("TANDEM_EMULATED_LOSS");
  if (loss != nullptr) PlanLoss(loss, cuda.get());
  return cuda;
}

}  // namespace tandem
