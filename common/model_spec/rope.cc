#include "common/model_spec/rope.h"

#include <cmath>
#include <numbers>

namespace tandem {
namespace {

// torch evaluates `scalar / tensor` as reciprocal(tensor) * scalar, two float32 roundings.
float ScalarOver(double scalar, float tensor) {
  return (1.0f / tensor) * static_cast<float>(scalar);
}

float Llama3Frequency(float frequency, const RopeScaling& rope) {
  const double context = static_cast<double>(rope.original_max_position);
  const float low_wavelength = static_cast<float>(context / rope.low_freq_factor);
  const float high_wavelength = static_cast<float>(context / rope.high_freq_factor);
  const float factor = static_cast<float>(rope.factor);
  const float wavelength = ScalarOver(2.0 * std::numbers::pi, frequency);
  if (wavelength > low_wavelength) return frequency / factor;
  if (wavelength < high_wavelength) return frequency;
  const float smooth =
      (ScalarOver(context, wavelength) - static_cast<float>(rope.low_freq_factor)) /
      static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::vector<float> RopeInverseFrequencies(const ModelSpec& spec) {
  std::vector<float> frequencies;
  frequencies.reserve(static_cast<size_t>(spec.head_dim / 2));
  for (int64_t i = 0; i < spec.head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(spec.head_dim);
    // The power in double, rounded once: no difference between math libraries.
    const float power = static_cast<float>(
        std::pow(static_cast<double>(static_cast<float>(spec.rope_theta)), exponent));
    const float frequency = 1.0f / power;
    frequencies.push_back(spec.rope.type == RopeScaling::Type::kLlama3
                              ? Llama3Frequency(frequency, spec.rope)
                              : frequency);
  }
  return frequencies;
}

}  // namespace tandem
