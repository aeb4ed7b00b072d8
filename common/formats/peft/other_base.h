// Whether an adapter says that it belongs to another base than the one at hand.
#pragma once

#include <string>

#include "common/formats/peft/peft_config.h"

namespace tandem {

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
