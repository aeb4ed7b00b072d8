#include "common/formats/peft/peft_names.h"

#include <absl/strings/match.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/strip.h>

namespace tandem {
namespace {

std::string WithoutWrapping(const std::string& name) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, "base_model.model.")) absl::ConsumePrefix(&rest, "base_model.");
  return absl::StrReplaceAll(rest, {{".base_layer.", "."}});
}

}  // namespace

std::optional<PeftTensorName> ParsePeftTensorName(const std::string& name) {
  const std::string plain = WithoutWrapping(name);
  absl::string_view rest = plain;
  if (!absl::ConsumeSuffix(&rest, ".weight")) return std::nullopt;
  absl::ConsumeSuffix(&rest, ".default");
  PeftTensorName parsed;
  if (absl::ConsumeSuffix(&rest, ".lora_A")) {
    parsed.matrix = LoraMatrix::kA;
  } else if (absl::ConsumeSuffix(&rest, ".lora_B")) {
    parsed.matrix = LoraMatrix::kB;
  } else {
    return std::nullopt;
  }
  parsed.module = std::string(rest);
  return parsed;
}

}  // namespace tandem
