#include "controller/assembly/run_inputs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/formats/hf_checkpoint.h"
#include "controller/assembly/run_options.h"
#include "controller/data/run_data.h"
#include "controller/partial_rollout/partial_options.h"
#include "controller/plan/lora_checks.h"
#include "controller/reward/composite_reward.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// Requires enough prompts for one batch and for the draw of one round. `filtered`: the number of
// prompts that were too long.
absl::Status CheckEnough(int64_t prompts, int64_t filtered, const v1::Config& config) {
  const v1::Data& data = config.data();
  const PartialOptions partial = MakePartialOptions(config);
  const int64_t drawn = std::max(partial.enabled ? partial.FreshPrompts(0, 0) : 0,
                                 static_cast<int64_t>(data.train_batch_size()));
  if (prompts >= drawn) return absl::OkStatus();
  std::string longer;
  if (filtered > 0) {
    longer =
        fmt::format(", or raise data.max_prompt_length = {}, above which {} prompt(s) were skipped",
                    data.max_prompt_length(), filtered);
  }
  return InvalidArgument(
      "{} training prompts are fewer than {} = {}; lower it, or give more rows "
      "in data.train_files{}",
      prompts,
      prompts < data.train_batch_size() ? "data.train_batch_size"
                                        : "rollout.partial.groups_per_round",
      prompts < data.train_batch_size() ? data.train_batch_size() : drawn, longer);
}

}  // namespace

absl::StatusOr<RunInputs> LoadRunInputs(const v1::Config& config) {
  RunInputs inputs;
  const std::string& model = config.model().path();
  TANDEM_ASSIGN_OR_RETURN(inputs.spec, CheckModel(model, config.rollout().max_model_len()));
  TANDEM_ASSIGN_OR_RETURN(inputs.tokenizer, Tokenizer::Load(model));
  TANDEM_RETURN_IF_ERROR(CheckLoraInputs(config, inputs.spec));
  if (const std::string warning = LoraWarning(config); !warning.empty()) LogWarn("{}", warning);
  TANDEM_RETURN_IF_ERROR(CheckVocabulary(model, inputs.spec, inputs.tokenizer->vocab_size()));
  TANDEM_ASSIGN_OR_RETURN(inputs.reward, MakeReward(config.reward(), MakeRpcSecurity(config)));
  TANDEM_ASSIGN_OR_RETURN(RunData data, LoadRunData(config, *inputs.tokenizer, *inputs.reward));
  inputs.codec = std::move(data.codec);
  LoadedPrompts& train = data.train;
  LogInfo("{} training prompts of {} rows ({} too long, {} cut)", train.prompts.size(), train.rows,
          train.filtered, train.truncated);
  const int64_t filtered = train.filtered;
  inputs.validation = std::move(data.validation.prompts);
  inputs.prompts = std::make_unique<ShuffledPrompts>(
      std::move(train.prompts),
      ShuffledPrompts::Options{.shuffle = config.data().shuffle(),
                               .seed = static_cast<uint64_t>(config.data().seed())});
  TANDEM_RETURN_IF_ERROR(CheckEnough(inputs.prompts->size(), filtered, config));
  return inputs;
}

}  // namespace tandem
