// adapter_config.json, PEFT's description of an adapter.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "common/lora/lora_spec.h"

namespace tandem {

inline constexpr char kAdapterConfigFile[] = "adapter_config.json";
inline constexpr char kAdapterWeightsFile[] = "adapter_model.safetensors";

struct PeftConfig {
  LoraOptions lora;
  double dropout = 0;      // acts in training only
  std::string base_model;  // base_model_name_or_path; may be empty
};

// `source` names the file in errors. InvalidArgument names the key, why it is refused and the
// remedy: no JSON object; r or lora_alpha missing or 0 (none is ever assumed); another peft_type or
// task_type; values of the wrong type. Unimplemented: DoRA, rsLoRA and other variants,
// modules_to_save, biases, fan_in_fan_out, patterns of ranks, alphas and layers, an initialisation
// that changes the base.
absl::StatusOr<PeftConfig> ParsePeftConfig(const std::string& text, const std::string& source);

// The text that PEFT reads back as the same adapter. `base_model` is a path or a name.
std::string PeftConfigJson(const LoraSpec& spec, const std::string& base_model, double dropout = 0);

// Whether an adapter says that it belongs to another base than the one at hand.

// The model's name at the end of a name or path: "model" of "org/model" and of "/models/model/",
// and of ".../models--org--model/snapshots/HASH", Hugging Face's cache.
std::string BaseName(const std::string& base);

// Empty where `config` names no base, or one of the name of `base`; else a sentence that names
// `adapter` (its folder) and both. What adapter_config.json says is a name or a path of the machine
// that wrote it: worth a warning, and no reason to refuse.
std::string OtherBase(const PeftConfig& config,
                      const std::string& adapter,
                      const std::string& base);

}  // namespace tandem
