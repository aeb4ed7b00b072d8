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

// `source` names the file in errors. InvalidArgument names the key, the reason and the remedy: not
// a JSON object; r or lora_alpha is missing or 0 (there is no default); another peft_type or
// task_type; a value of the wrong type. Unimplemented: DoRA, rsLoRA and other variants,
// modules_to_save, biases, fan_in_fan_out, patterns of ranks, alphas and layers, an initialisation
// that changes the base.
absl::StatusOr<PeftConfig> ParsePeftConfig(const std::string& text, const std::string& source);

// The text that PEFT reads as the same adapter. `base_model` is a path or a name.
std::string PeftConfigJson(const LoraSpec& spec, const std::string& base_model, double dropout = 0);

// Whether an adapter names another base than the one in use.

// The last component of a model's name or path: "model" for "org/model", for "/models/model/", and
// for ".../models--org--model/snapshots/HASH", Hugging Face's cache.
std::string BaseName(const std::string& base);

// Empty if `config` names no base, or one with the same BaseName as `base`; else a sentence that
// names `adapter` (its folder) and both bases. adapter_config.json has a name, or a path on the
// machine that wrote it, so a difference is only worth a warning.
std::string OtherBase(const PeftConfig& config,
                      const std::string& adapter,
                      const std::string& base);

}  // namespace tandem
