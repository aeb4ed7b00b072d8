#include "controller/lora_inputs.h"

#include <filesystem>

#include "common/base/status_macros.h"
#include "common/lora/peft_adapter.h"
#include "common/tensor_file/atomic_file.h"

namespace tandem {
namespace {

// adapter_config.json in one of the folders of a checkpoint, "" without one.
std::string AdapterConfigIn(const std::string& checkpoint) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint, error)) {
    const std::filesystem::path file = entry.path() / kAdapterConfigFile;
    if (std::filesystem::exists(file, error)) return file.string();
  }
  return "";
}

}  // namespace

absl::Status CheckLoraInputs(const v1::Config& config, const ModelSpec& model) {
  const v1::Lora& lora = config.model().lora();
  if (lora.rank() == 0) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const LoraSpec spec, MakeLoraSpec(model, LoraOptionsOf(config)));
  if (lora.adapter_path().empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const auto adapter, PeftAdapter::Open(lora.adapter_path(), model));
  return SameLora(spec, "model.lora", adapter->spec(), lora.adapter_path());
}

absl::Status CheckResumedAdapters(const v1::Config& config,
                                  const ModelSpec& model,
                                  const std::string& checkpoint) {
  const std::string file = AdapterConfigIn(checkpoint);
  if (config.model().lora().rank() == 0 || file.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const LoraSpec wanted, MakeLoraSpec(model, LoraOptionsOf(config)));
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
  TANDEM_ASSIGN_OR_RETURN(const PeftConfig saved, ParsePeftConfig(text, file));
  TANDEM_ASSIGN_OR_RETURN(const LoraSpec found,
                          MakeLoraSpec(model, saved.lora, UnmatchedEntry::kIgnore));
  return SameLora(wanted, "model.lora", found, "checkpoint " + checkpoint);
}

}  // namespace tandem
