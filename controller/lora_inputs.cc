#include "controller/lora_inputs.h"

#include "common/base/status_macros.h"
#include "common/lora/peft_adapter.h"

namespace tandem {

absl::Status CheckLoraInputs(const v1::Config& config, const ModelSpec& model) {
  const v1::Lora& lora = config.model().lora();
  if (lora.rank() == 0) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const LoraSpec spec, MakeLoraSpec(model, LoraOptionsOf(config)));
  if (lora.adapter_path().empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const auto adapter, PeftAdapter::Open(lora.adapter_path(), model));
  return SameLora(spec, "model.lora", adapter->spec(), lora.adapter_path());
}

}  // namespace tandem
