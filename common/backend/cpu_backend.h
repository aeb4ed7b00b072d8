// The host as a backend.
#pragma once

#include <memory>

#include "common/backend/backend.h"

namespace tandem {

std::unique_ptr<Backend> MakeCpuBackend(std::shared_ptr<ThreadPool> pool);

}  // namespace tandem
