#include "common/device/cuda/cuda_status.h"

#include <utility>

#include "common/base/device_lost.h"
#include "common/base/status_macros.h"

namespace tandem {
namespace {

absl::StatusCode CodeOf(int code) {
  switch (static_cast<cudaError_t>(code)) {
    case cudaErrorMemoryAllocation:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
      return absl::StatusCode::kResourceExhausted;
    // No device, or not for this process.
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceNotLicensed:
    case cudaErrorDeviceAlreadyInUse:
    case cudaErrorSoftwareValidityNotEstablished:
    // A driver that is not there, does not start, or does not fit this program.
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorSharedObjectInitFailed:
    // A device that this program's kernels were not built for.
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled:
    // What the system or the device does not let this process do.
    case cudaErrorNotPermitted:
    case cudaErrorNotSupported:
    case cudaErrorOperatingSystem:
    case cudaErrorMapBufferObjectFailed:  // what opening another process's memory comes to
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorTooManyPeers:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsServerNotReady:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

// "This leaves the process in an inconsistent state and any further CUDA work will return the same
// error", and hardware that lost what it held.
bool LosesDevice(int code) {
  switch (static_cast<cudaError_t>(code)) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::Status CudaErrorStatus(int code,
                             const std::string& call,
                             const std::string& name,
                             const std::string& text) {
  absl::Status status = MakeStatus(CodeOf(code), "{}: {} ({}): {}", call, name, code, text);
  return LosesDevice(code) ? WithDeviceLost(std::move(status)) : status;
}

absl::Status CheckRuntime(cudaError_t result, const std::string& call) {
  if (result == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  return CudaErrorStatus(static_cast<int>(result), call, cudaGetErrorName(result),
                         cudaGetErrorString(result));
}

}  // namespace tandem
