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

}  // namespace tandem
