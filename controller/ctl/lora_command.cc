#include "controller/ctl/lora_command.h"

#include <set>

#include <absl/strings/str_join.h>

#include "common/base/status_macros.h"
#include "common/lora/merge_checkpoint.h"
#include "common/lora/peft_config.h"
#include "common/tensor_file/atomic_file.h"
#include "common/tensor_file/safetensors.h"

namespace tandem {
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

}  // namespace

absl::Status LoraMergeCommand(const LoraMergeOptions& options, std::ostream& out) {
  TANDEM_ASSIGN_OR_RETURN(const MergeCheckpointOptions parsed, ParseOptions(options));
  TANDEM_ASSIGN_OR_RETURN(const MergedCheckpoint merged,
                          MergeCheckpoint(options.base, options.adapter, options.out, parsed));
  out << fmt::format("{}: {} tensors, {} of them merged, {} bytes\n", options.out, merged.tensors,
                     merged.merged, merged.bytes);
  return absl::OkStatus();
}

absl::Status LoraInspectCommand(const std::string& adapter, std::ostream& out) {
  const std::string path = adapter + "/" + kAdapterConfigFile;
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  TANDEM_ASSIGN_OR_RETURN(const PeftConfig config, ParsePeftConfig(text, path));
  TANDEM_ASSIGN_OR_RETURN(const auto file,
                          SafetensorsFile::Open(adapter + "/" + kAdapterWeightsFile));
  const LoraOptions& lora = config.lora;
  uint64_t bytes = 0;
  std::set<std::string> dtypes;
  for (const SafetensorsTensor& tensor : file->tensors()) {
    bytes += tensor.end - tensor.begin;
    dtypes.insert(DTypeName(tensor.dtype));
  }
  out << fmt::format("rank               {}\nalpha              {}\nscaling            {}\n",
                     lora.rank, lora.alpha, lora.alpha / static_cast<double>(lora.rank));
  const auto list = [&out](const char* key, const std::vector<std::string>& names) {
    if (!names.empty()) out << fmt::format("{:18} {}\n", key, absl::StrJoin(names, ", "));
  };
  list("target_modules", lora.target_modules);
  list("exclude_modules", lora.exclude_modules);
  list("target_parameters", lora.target_parameters);
  if (config.dropout > 0) out << fmt::format("dropout            {}\n", config.dropout);
  if (!config.base_model.empty()) out << fmt::format("base               {}\n", config.base_model);
  out << fmt::format("tensors            {} of {}, {} bytes\n", file->tensors().size(),
                     absl::StrJoin(dtypes, ", "), bytes);
  return absl::OkStatus();
}

}  // namespace tandem
