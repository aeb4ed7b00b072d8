// How PEFT spells tensors, in a model that carries adapters and in an adapter's file.
#pragma once

#include <optional>
#include <string>

#include "common/lora/lora_spec.h"

namespace tandem {

struct PeftTensorName {
  std::string module;  // HF spelling
  LoraMatrix matrix = LoraMatrix::kA;
};

// Takes "base_model.model.<module>.lora_A.weight" apart; the prefix may be missing, and the name
// "default" of the adapter may stand before ".weight". Nothing for any other name.
std::optional<PeftTensorName> ParsePeftTensorName(const std::string& name);

}  // namespace tandem
