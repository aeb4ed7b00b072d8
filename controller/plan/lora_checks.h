// Compares model.lora with the model, the initial adapters and the checkpoint that it applies to.
#pragma once

#include <string>

#include <absl/status/status.h>

#include "common/config/config.h"
#include "common/model_spec/model_spec.h"

namespace tandem {

// OK without LoRA. InvalidArgument: targets that `model` does not have (MakeLoraSpec), or initial
// adapters that differ from model.lora or belong to another base (PeftAdapter::Open, SameLora).
absl::Status CheckLoraInputs(const v1::Config& config, const ModelSpec& model);

// A one-line warning if the initial adapters name another base than model.path (OtherBase), else
// "". Ignores files that CheckLoraInputs refuses.
std::string LoraWarning(const v1::Config& config);

// OK without LoRA, or if `checkpoint` has no adapter folder (the trainers compare the adapters in
// any case). InvalidArgument: the adapters in `checkpoint` have other targets than model.lora
// selects in `model`, or another rank or alpha (SameLora).
absl::Status CheckResumedAdapters(const v1::Config& config,
                                  const ModelSpec& model,
                                  const std::string& checkpoint);

}  // namespace tandem
