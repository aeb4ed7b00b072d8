// Rotary frequencies, computed as transformers' modeling_rope_utils does (default and llama3).
#pragma once

#include <vector>

#include "common/model_spec/model_spec.h"

namespace tandem {

// head_dim / 2 frequencies in radians per position: theta^(-2i/head_dim) in float32, then the
// llama3 stretch if the spec asks for it. Pair i of a head is elements i and i + head_dim / 2.
std::vector<float> RopeInverseFrequencies(const ModelSpec& spec);

}  // namespace tandem
