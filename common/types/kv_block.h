// The size of a KV block, which planning (model_spec) and kernels (ops) must agree on.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr int64_t kKvBlockTokens = 64;

}  // namespace tandem
