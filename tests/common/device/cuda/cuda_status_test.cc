#include <set>
#include <string>

#include <catch2/catch.hpp>
#include <cuda.h>

#include "common/base/status.h"
#include "common/device/cuda/driver_api.h"

namespace tandem {
namespace {

absl::StatusCode CodeOf(int code) { return CudaErrorStatus(code, "", "", "").code(); }

}  // namespace

TEST_CASE("an error of CUDA is a status that names the call and the error") {
  REQUIRE(CheckRuntime(cudaSuccess, "x").ok());
  const absl::Status status = CheckRuntime(cudaErrorMemoryAllocation, "cudaMalloc of 7 bytes");
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  const std::string message(status.message());
  REQUIRE(message.find("cudaMalloc of 7 bytes: cudaErrorMemoryAllocation (2)") == 0);
}

TEST_CASE("memory is exhausted, the system refuses, the rest is internal") {
  const std::set<int> exhausted = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
                                   CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED};
  const std::set<int> refused = {CUDA_ERROR_NO_DEVICE,
                                 CUDA_ERROR_INVALID_DEVICE,
                                 CUDA_ERROR_DEVICE_UNAVAILABLE,
                                 CUDA_ERROR_DEVICE_NOT_LICENSED,
                                 CUDA_ERROR_CONTEXT_ALREADY_IN_USE,
                                 cudaErrorSoftwareValidityNotEstablished,
                                 CUDA_ERROR_NOT_INITIALIZED,
                                 CUDA_ERROR_STUB_LIBRARY,
                                 cudaErrorInsufficientDriver,
                                 cudaErrorCallRequiresNewerDriver,
                                 CUDA_ERROR_SYSTEM_NOT_READY,
                                 CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
                                 CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
                                 CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
                                 CUDA_ERROR_NO_BINARY_FOR_GPU,
                                 CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                                 CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
                                 CUDA_ERROR_JIT_COMPILATION_DISABLED,
                                 CUDA_ERROR_NOT_PERMITTED,
                                 CUDA_ERROR_NOT_SUPPORTED,
                                 CUDA_ERROR_OPERATING_SYSTEM,
                                 CUDA_ERROR_MAP_FAILED,
                                 CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
                                 CUDA_ERROR_TOO_MANY_PEERS,
                                 CUDA_ERROR_MPS_CONNECTION_FAILED,
                                 CUDA_ERROR_MPS_SERVER_NOT_READY};
  // Every number that CUDA 13 has given, and those that it has not.
  for (int code = 1; code <= cudaErrorUnknown + 1; ++code) {
    INFO(code << " " << cudaGetErrorName(static_cast<cudaError_t>(code)));
    REQUIRE(CodeOf(code) == (exhausted.contains(code) ? absl::StatusCode::kResourceExhausted
                             : refused.contains(code) ? absl::StatusCode::kFailedPrecondition
                                                      : absl::StatusCode::kInternal));
  }
}

TEST_CASE("what the runtime and the driver both number has one number") {
  REQUIRE(int{cudaErrorMemoryAllocation} == int{CUDA_ERROR_OUT_OF_MEMORY});
  REQUIRE(int{cudaErrorDevicesUnavailable} == int{CUDA_ERROR_DEVICE_UNAVAILABLE});
  REQUIRE(int{cudaErrorNoKernelImageForDevice} == int{CUDA_ERROR_NO_BINARY_FOR_GPU});
  REQUIRE(int{cudaErrorMapBufferObjectFailed} == int{CUDA_ERROR_MAP_FAILED});
  REQUIRE(int{cudaErrorDeviceAlreadyInUse} == int{CUDA_ERROR_CONTEXT_ALREADY_IN_USE});
  REQUIRE(int{cudaErrorIllegalAddress} == int{CUDA_ERROR_ILLEGAL_ADDRESS});
  REQUIRE(int{cudaErrorMpsMaxConnectionsReached} == int{CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED});
  REQUIRE(int{cudaErrorUnknown} == int{CUDA_ERROR_UNKNOWN});
}

TEST_CASE("errors after which only another process can use the device say so") {
  for (const CUresult lost :
       {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_TIMEOUT,
        CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE,
        CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC,
        CUDA_ERROR_ASSERT, CUDA_ERROR_CONTAINED, CUDA_ERROR_TENSOR_MEMORY_LEAK,
        CUDA_ERROR_MPS_CLIENT_TERMINATED, CUDA_ERROR_EXTERNAL_DEVICE}) {
    const absl::Status status = CudaErrorStatus(lost, "call", "", "");
    REQUIRE(IsDeviceLost(status));
    REQUIRE(IsDeviceLost(Annotate(status, "who asked")));
  }
  for (const CUresult other :
       {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED,
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES}) {
    REQUIRE_FALSE(IsDeviceLost(CudaErrorStatus(other, "call", "", "")));
  }
  REQUIRE_FALSE(IsDeviceLost(absl::OkStatus()));
}

}  // namespace tandem
