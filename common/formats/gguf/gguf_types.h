// ggml's storage types: block layouts and their exact values. Formulas: ggml's quants, as value =
// d * q (+ m), with d and m stored as fp16 and the arithmetic in fp32, multiply then add.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem {

struct GgufBlockType {
  uint32_t type;
  const char* name;
  size_t block_elements;
  size_t block_bytes;
  // One block of `block_elements` values.
  void (*dequantize)(const uint8_t* block, float* values);
};

// nullptr when the type cannot be read.
const GgufBlockType* FindGgufBlockType(uint32_t type);

}  // namespace tandem
