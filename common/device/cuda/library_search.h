// Looks libraries up at run time, so that programs start on machines without them.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// Loads `name` ("libnccl.so.2") for the life of the process, from the first of: the folders of
// $TANDEM_CUDA_LIBS (separated by colons), the loader's own path, the folder `wheel`
// ("nvidia/nccl/lib") beside the PyTorch package that this process uses, /usr/local/cuda/lib64.
// FailedPrecondition names the folders that were searched.
absl::StatusOr<void*> OpenLibrary(const std::string& name, const std::string& wheel);
// The folders that OpenLibrary looks into, in order; "" is the loader's own path.
std::vector<std::string> LibraryFolders(const std::string& wheel);
// Returns a function of it. FailedPrecondition: it has none of this name, so it is another version.
absl::StatusOr<void*> FindFunction(void* library, const std::string& name);

}  // namespace tandem
