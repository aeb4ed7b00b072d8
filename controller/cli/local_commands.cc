#include "controller/cli/local_commands.h"

#include "common/base/status_macros.h"
#include "common/config/loaded_config.h"
#include "common/formats/check_model.h"
#include "common/formats/gguf/gguf_import.h"
#include "controller/data/convert_gsm8k.h"
#include "controller/data/convert_math.h"
#include "controller/plan/lora_checks.h"
#include "controller/reward/check_reward.h"
#include "controller/reward/reward_keys.h"

namespace tandem {

absl::Status ImportGgufCommand(const std::string& gguf, const std::string& dir, std::ostream& out) {
  TANDEM_RETURN_IF_ERROR(ImportGguf(gguf, dir));
  out << "wrote " << dir << "\n";
  return absl::OkStatus();
}

absl::Status MakeDataCommand(const std::string& task,
                             const std::string& dir,
                             const AdditionOptions& options,
                             std::ostream& out) {
  if (task != "addition") return InvalidArgument("unknown task {} (known: addition)", task);
  TANDEM_ASSIGN_OR_RETURN(const AdditionFiles files, MakeAddition(dir, options));
  out << fmt::format("{}: {} prompts\n{}: {} prompts, none of whose pairs is trained on\n",
                     files.train_path, files.train_rows, files.val_path, files.val_rows);
  return absl::OkStatus();
}

absl::Status ConvertDataCommand(const std::string& format,
                                const std::string& input,
                                const std::string& output,
                                std::ostream& out) {
  if (format != "gsm8k" && format != "math") {
    return InvalidArgument("unknown format {} (known: gsm8k, math)", format);
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t rows, format == "math" ? ConvertMath(input, output)
                                                               : ConvertGsm8k(input, output));
  out << fmt::format("{}: {} prompts\n", output, rows);
  return absl::OkStatus();
}

absl::Status ConfigExplainCommand(const std::string& key, std::ostream& out) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ExplainConfig(key));
  out << text;
  return absl::OkStatus();
}

absl::Status ConfigMarkdownCommand(std::ostream& out) {
  out << ConfigMarkdown();
  return absl::OkStatus();
}

absl::Status ConfigCheckCommand(const std::string& path,
                                const std::vector<std::string>& overrides,
                                FailedAt* failed_at,
                                std::ostream& out) {
  *failed_at = FailedAt::kConfig;
  TANDEM_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(path, overrides));
  for (const std::string& notice : loaded.notices) out << "# " << notice << "\n";
  TANDEM_RETURN_IF_ERROR(Validate(loaded.config, loaded.origins));
  TANDEM_RETURN_IF_ERROR(CheckReward(loaded.config.reward(), loaded.origins));
  TANDEM_RETURN_IF_ERROR(CheckRewardKeys(loaded.config, loaded.origins));
  *failed_at = FailedAt::kInputs;
  TANDEM_ASSIGN_OR_RETURN(
      const ModelSpec model,
      CheckModel(loaded.config.model().path(), loaded.config.rollout().max_model_len()));
  TANDEM_RETURN_IF_ERROR(CheckLoraInputs(loaded.config, model));
  if (const std::string warning = LoraWarning(loaded.config); !warning.empty()) {
    out << "# warning: " << warning << "\n";
  }
  out << ConfigToYaml(loaded.config);
  return absl::OkStatus();
}

}  // namespace tandem
