#include "controller/cli/lora_command.h"

#include <set>

#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/formats/files.h"
#include "common/formats/peft/merge_checkpoint.h"
#include "common/formats/peft/peft_adapter.h"
#include "common/formats/peft/peft_config.h"
#include "common/formats/safetensors.h"

namespace tandem {

void AddMergeOptions(CLI::App& merge, LoraMergeOptions& options) {
  merge.add_option("BASE", options.base, "HF checkpoint directory")->required();
  merge.add_option("ADAPTER", options.adapter, "adapter_config.json, adapter_model.safetensors")
      ->required();
  merge.add_option("OUT", options.out, "HF checkpoint directory to write; never over another")
      ->required();
  merge.add_option("--dtype", options.dtype, "of the weights; base: each as the base has it")
      ->check(CLI::IsMember({"bfloat16", "float32", "base"}))
      ->capture_default_str();
  merge
      .add_option("--rule", options.rule,
                  "served: rounded once, what a run serves; peft: what PEFT's merge gives, which "
                  "rounds the product of a bf16 adapter as well")
      ->check(CLI::IsMember({"served", "peft"}))
      ->capture_default_str();
}

namespace {

using Rounding = MergeCheckpointOptions::Rounding;
using Output = MergeCheckpointOptions::Output;

absl::StatusOr<MergeCheckpointOptions> ParseOptions(const LoraMergeOptions& options) {
  MergeCheckpointOptions parsed;
  if (options.dtype == "float32") {
    parsed.output = Output::kFloat32;
  } else if (options.dtype == "base") {
    parsed.output = Output::kBase;
  } else if (options.dtype != "bfloat16") {
    return InvalidArgument("unknown dtype {} (known: bfloat16, float32, base)", options.dtype);
  }
  if (options.rule == "peft") {
    parsed.rounding = Rounding::kPeft;
  } else if (options.rule != "served") {
    return InvalidArgument("unknown rule {} (known: served, peft)", options.rule);
  }
  return parsed;
}

absl::StatusOr<std::string> Warning(const std::string& base, const std::string& adapter) {
  const std::string path = adapter + "/" + kAdapterConfigFile;
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  TANDEM_ASSIGN_OR_RETURN(const PeftConfig config, ParsePeftConfig(text, path));
  const std::string other = OtherBase(config, adapter, base);
  return other.empty() ? other : fmt::format("warning: {}\n", other);
}

nlohmann::json InspectionJson(const PeftConfig& config) {
  const LoraOptions& lora = config.lora;
  return {{"rank", lora.rank},
          {"alpha", lora.alpha},
          {"scaling", lora.alpha / static_cast<double>(lora.rank)},
          {"target_modules", lora.target_modules},
          {"exclude_modules", lora.exclude_modules},
          {"target_parameters", lora.target_parameters},
          {"dropout", config.dropout},
          {"base", config.base_model}};
}

std::string InspectionText(const PeftConfig& config) {
  const LoraOptions& lora = config.lora;
  std::string text =
      fmt::format("rank               {}\nalpha              {}\nscaling            {}\n",
                  lora.rank, lora.alpha, lora.alpha / static_cast<double>(lora.rank));
  const auto list = [&text](const char* key, const std::vector<std::string>& names) {
    if (!names.empty()) text += fmt::format("{:18} {}\n", key, absl::StrJoin(names, ", "));
  };
  list("target_modules", lora.target_modules);
  list("exclude_modules", lora.exclude_modules);
  list("target_parameters", lora.target_parameters);
  if (config.dropout > 0) text += fmt::format("dropout            {}\n", config.dropout);
  if (!config.base_model.empty()) text += fmt::format("base               {}\n", config.base_model);
  return text;
}

}  // namespace

absl::Status LoraMergeCommand(const LoraMergeOptions& options, std::ostream& out) {
  TANDEM_ASSIGN_OR_RETURN(const MergeCheckpointOptions parsed, ParseOptions(options));
  TANDEM_ASSIGN_OR_RETURN(const std::string warning, Warning(options.base, options.adapter));
  TANDEM_ASSIGN_OR_RETURN(const MergedCheckpoint merged,
                          MergeCheckpoint(options.base, options.adapter, options.out, parsed));
  out << warning
      << fmt::format("{}: {} tensors, {} of them merged, {} bytes\n", options.out, merged.tensors,
                     merged.merged, merged.bytes);
  return absl::OkStatus();
}

absl::Status LoraInspectCommand(const LoraInspectOptions& options, std::ostream& out) {
  const std::string path = options.adapter + "/" + kAdapterConfigFile;
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  TANDEM_ASSIGN_OR_RETURN(const PeftConfig config, ParsePeftConfig(text, path));
  TANDEM_ASSIGN_OR_RETURN(const auto file,
                          SafetensorsFile::Open(options.adapter + "/" + kAdapterWeightsFile));
  if (options.base.empty()) TANDEM_RETURN_IF_ERROR(CheckPeftTensors(*file, config));
  uint64_t bytes = 0;
  std::set<std::string> dtypes;
  for (const SafetensorsTensor& tensor : file->tensors()) {
    bytes += tensor.end - tensor.begin;
    dtypes.insert(DTypeName(tensor.dtype));
  }
  int64_t modules = 0;
  std::string warning;
  if (!options.base.empty()) {
    TANDEM_ASSIGN_OR_RETURN(const ModelSpec base, LoadModelSpec(options.base));
    TANDEM_ASSIGN_OR_RETURN(const auto adapter, PeftAdapter::Open(options.adapter, base));
    TANDEM_ASSIGN_OR_RETURN(warning, Warning(options.base, options.adapter));
    modules = std::ssize(adapter->spec().targets);
  }
  if (options.json) {
    nlohmann::json json = InspectionJson(config);
    json["tensors"] = file->tensors().size();
    json["dtypes"] = dtypes;
    json["bytes"] = bytes;
    if (!options.base.empty()) {
      json["fits"] = {{"base", options.base}, {"modules", modules}, {"warning", warning}};
    }
    out << json.dump() << "\n";
    return absl::OkStatus();
  }
  out << InspectionText(config)
      << fmt::format("tensors            {} of {}, {} bytes\n", file->tensors().size(),
                     absl::StrJoin(dtypes, ", "), bytes);
  if (options.base.empty()) return absl::OkStatus();
  out << fmt::format("fits               {}, on {} modules\n{}", options.base, modules, warning);
  return absl::OkStatus();
}

}  // namespace tandem
