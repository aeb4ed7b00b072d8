// Libraries that are looked up at run time, so that programs start on machines without them.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// Loads `name` ("libnccl.so.2"), for good, from the first of: the folders of $TANDEM_CUDA_LIBS
// (colons between them), the loader's own path, `wheel` beside PyTorch's package where this process
// uses one ("nvidia/nccl/lib"), /usr/local/cuda/lib64. FailedPrecondition names where it was not.
absl::StatusOr<void*> OpenLibrary(const std::string& name, const std::string& wheel);
// The folders that OpenLibrary looks into, in order; "" is the loader's own path.
std::vector<std::string> LibraryFolders(const std::string& wheel);
// A function of it. FailedPrecondition: it has none of the name, so it is another version.
absl::StatusOr<void*> FindFunction(void* library, const std::string& name);

}  // namespace tandem
