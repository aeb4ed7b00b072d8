// Float elements from one storage type to another.
#pragma once

#include <cstddef>
#include <cstdint>

#include <absl/status/status.h>

#include "common/types/tensor_view.h"

namespace tandem {

// F32, BF16 or F16: what a model weight may be stored as.
bool IsFloat(DType dtype);

// Converts `count` elements, rounding to nearest even where the target is narrower. `from_type` is
// F32, BF16 or F16, `to_type` F32 or BF16; anything else is InvalidArgument. `from` needs no
// alignment (safetensors promises none); the two must not overlap.
absl::Status ConvertElements(
    const void* from, DType from_type, void* to, DType to_type, size_t count);

}  // namespace tandem
