// CUDA's errors as statuses. The runtime and the driver number theirs alike. Needs CUDA's headers.
#pragma once

#include <string>

#include <absl/status/status.h>
#include <cuda_runtime_api.h>

namespace tandem {

// Of the error with number `code` (cudaError_t or CUresult, not 0): ResourceExhausted for memory
// and for clients of MPS, FailedPrecondition where the system has no device, a driver that does not
// fit or refuses the call, else Internal: mistakes of this program and broken devices, also a
// number that CUDA 13 does not know. `call`, `name` and `text` make the message. IsDeviceLost of
// those after which, as CUDA's header says, the process must end.
absl::Status CudaErrorStatus(int code,
                             const std::string& call,
                             const std::string& name,
                             const std::string& text);

// OK for cudaSuccess. Forgets what the runtime keeps of the error on this thread, so that whoever
// goes on after it does not find it again at the next launch.
absl::Status CheckRuntime(cudaError_t result, const std::string& call);

}  // namespace tandem
