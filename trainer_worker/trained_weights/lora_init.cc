#include "trainer_worker/trained_weights/lora_init.h"

#include <cmath>

#include "common/base/philox.h"

namespace tandem {
namespace {

// Sets these streams apart from those that sample tokens with the same seed.
constexpr uint64_t kStream = uint64_t{0x4c6f5241} << 32;  // "LoRA"

}  // namespace

void InitialLoraA(
    uint64_t seed, int64_t tensor, int64_t in, int64_t first, int64_t count, float* out) {
  const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(in)));
  const uint64_t stream = kStream | static_cast<uint64_t>(tensor);
  for (int64_t i = 0; i < count; ++i) {
    const float uniform = RandomUniform(seed, stream, static_cast<uint64_t>(first + i));
    out[i] = (2.0f * uniform - 1.0f) * bound;
  }
}

}  // namespace tandem
