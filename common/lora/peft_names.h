// How PEFT spells tensors, in a model that carries adapters and in an adapter's file.
#pragma once

#include <optional>
#include <string>

#include "common/lora/lora_spec.h"

namespace tandem {

// The HF name of a base tensor of a model with adapters, as verl's normalize_peft_param_name:
// "base_model.model.model.norm.weight" and "base_model.model.model.layers.0.mlp.up_proj.base_layer
// .weight" lose prefix and infix. Nothing for what belongs to an adapter.
std::optional<std::string> NormalizePeftParamName(const std::string& name);

struct PeftTensorName {
  std::string module;  // HF spelling
  LoraMatrix matrix = LoraMatrix::kA;
};

// Takes "base_model.model.<module>.lora_A.weight" apart; the prefix may be missing, and the name
// "default" of the adapter may stand before ".weight". Nothing for any other name.
std::optional<PeftTensorName> ParsePeftTensorName(const std::string& name);

}  // namespace tandem
