// What model.lora asks for against the files that it is about.
#pragma once

#include <string>

#include <absl/status/status.h>

#include "common/config/config.h"
#include "common/model_spec/model_spec.h"

namespace tandem {

// OK without adapters. InvalidArgument: targets that `model` does not have (MakeLoraSpec), adapters
// to begin with that are others than model.lora says, or of another base (PeftAdapter::Open,
// SameLora).
absl::Status CheckLoraInputs(const v1::Config& config, const ModelSpec& model);

// "", or a sentence for one line of warning: the adapters to begin with name another base than
// model.path (OtherBase). What CheckLoraInputs refuses is not looked at.
std::string LoraWarning(const v1::Config& config);

// OK without adapters, or where no folder of `checkpoint` says what they are (the trainers compare
// them in any case). InvalidArgument: what model.lora comes to with `model` has other targets than
// the adapters in `checkpoint`, or another rank or alpha (SameLora).
absl::Status CheckResumedAdapters(const v1::Config& config,
                                  const ModelSpec& model,
                                  const std::string& checkpoint);

}  // namespace tandem
