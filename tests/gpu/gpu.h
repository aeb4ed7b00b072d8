// The device that these programs run on: a GPU of the machine, or the emulator, on which the same
// programs are tested where there is none.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_api.h"

namespace tandem::testing {

// gpu.cc opens the machine's driver, emulated_gpu.cc the emulator. FailedPrecondition: no GPU.
absl::StatusOr<std::unique_ptr<CudaApi>> OpenGpu();

// Where the build has programs that compute on this device, beside the folder of this program.
extern const char* const kProgramsFolder;
// Whether it is the emulator: thousands of times slower, each process with its own memory.
extern const bool kEmulated;

// What programs end with where there is no GPU, or nothing else of what was asked for could be
// tested: CTest and gpu_check.sh call it skipped.
inline constexpr int kNoGpu = 77;

// Prints why nothing could be tested, in the line without which test_verdict.py takes an exit code
// of 77 for a failure; the exit code.
inline int Skipped(const std::string& why) {
  std::printf("skipped: %s\n", why.c_str());
  return kNoGpu;
}

// Said by a test that this machine cannot run, before it returns (gpu_test_main.cc).
void NotRun(const std::string& why);

}  // namespace tandem::testing
