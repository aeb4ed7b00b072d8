// Files in memory that processes of one host share by passing their descriptors.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/process/local_socket.h"

namespace tandem {

// An unnamed file in memory of `bytes`, sealed against resizing, pages allocated at once: it lives
// as long as a descriptor or mapping of it. `huge_pages`: in huge pages where the kernel can, worth
// the while for what lives long. ResourceExhausted names `name` and bytes.
absl::StatusOr<UniqueFd> CreateSharedMemory(const std::string& name,
                                            int64_t bytes,
                                            bool huge_pages = false);
// Checks that `fd` is such a file of at least `bytes`: touching it can never fault.
absl::Status CheckSharedMemory(int fd, int64_t bytes);

}  // namespace tandem
