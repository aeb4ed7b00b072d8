// What model.lora asks for against the files that it is about.
#pragma once

#include <absl/status/status.h>

#include "common/config/config.h"
#include "common/model_spec/model_spec.h"

namespace tandem {

// OK without adapters. InvalidArgument: targets that `model` does not have (MakeLoraSpec), adapters
// to begin with that are others than model.lora says, or of another base (PeftAdapter::Open,
// SameLora).
absl::Status CheckLoraInputs(const v1::Config& config, const ModelSpec& model);

}  // namespace tandem
