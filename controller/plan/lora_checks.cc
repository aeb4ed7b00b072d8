#include "controller/plan/lora_checks.h"

#include <filesystem>

#include <absl/strings/str_cat.h>

#include "common/base/status.h"
#include "common/formats/files.h"
#include "common/formats/peft/peft_adapter.h"
#include "common/formats/peft/peft_config.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// MakeLoraSpec's messages begin with the name of its option, which is the key in model.lora.
absl::StatusOr<LoraSpec> SpecOf(const v1::Config& config, const ModelSpec& model) {
  absl::StatusOr<LoraSpec> spec = MakeLoraSpec(model, LoraOptionsOf(config));
  if (spec.ok()) return spec;
  return absl::Status(spec.status().code(), absl::StrCat("model.lora.", spec.status().message()));
}

}  // namespace

absl::Status CheckLoraInputs(const v1::Config& config, const ModelSpec& model) {
  const v1::Lora& lora = config.model().lora();
  if (lora.rank() == 0) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const LoraSpec spec, SpecOf(config, model));
  if (lora.adapter_path().empty()) return absl::OkStatus();
  const std::string& path = lora.adapter_path();
  std::error_code error;
  if (!std::filesystem::exists(path + "/" + kAdapterConfigFile, error)) {
    return InvalidArgument(
        "model.lora.adapter_path={}: there is no {}: give a folder that PEFT or a checkpoint's "
        "lora_adapter has written, or leave the key out to begin with new adapters",
        path, kAdapterConfigFile);
  }
  const auto adapter = PeftAdapter::Open(path, model);
  if (!adapter.ok()) return Annotate(adapter.status(), "model.lora.adapter_path");
  return SameLora(spec, "model.lora", (*adapter)->spec(), path);
}

std::string LoraWarning(const v1::Config& config) {
  const v1::Lora& lora = config.model().lora();
  if (lora.rank() == 0 || lora.adapter_path().empty()) return "";
  const std::string file = lora.adapter_path() + "/" + kAdapterConfigFile;
  const auto text = ReadWholeFile(file);
  if (!text.ok()) return "";
  const auto saved = ParsePeftConfig(*text, file);
  if (!saved.ok()) return "";
  const std::string other = OtherBase(*saved, lora.adapter_path(), config.model().path());
  return other.empty() ? other : "model.lora.adapter_path: " + other;
}

absl::Status CheckResumedAdapters(const v1::Config& config,
                                  const ModelSpec& model,
                                  const std::string& checkpoint) {
  const std::string file = absl::StrCat(checkpoint, "/", kAdapterFolder, "/", kAdapterConfigFile);
  std::error_code error;
  if (config.model().lora().rank() == 0 || !std::filesystem::exists(file, error)) {
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(const LoraSpec wanted, SpecOf(config, model));
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
  TANDEM_ASSIGN_OR_RETURN(const PeftConfig saved, ParsePeftConfig(text, file));
  TANDEM_ASSIGN_OR_RETURN(const LoraSpec found,
                          MakeLoraSpec(model, saved.lora, UnmatchedEntry::kIgnore));
  return SameLora(wanted, "model.lora", found, "checkpoint " + checkpoint);
}

}  // namespace tandem
