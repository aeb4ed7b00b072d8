#include "controller/data/run_data.h"

#include <set>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "controller/reward/check_reward.h"
#include "tandem/v1/config.pb.h"

namespace tandem {

absl::StatusOr<RunData> LoadRunData(const v1::Config& config,
                                    const Tokenizer& tokenizer,
                                    const RewardFunction& reward) {
  RunData data;
  ChatCodecOptions codec{.template_kwargs = config.data().apply_chat_template_kwargs(),
                         .add_default_system_prompt = config.data().add_default_system_prompt(),
                         .now = RealClock().WallNow()};
  TANDEM_ASSIGN_OR_RETURN(data.codec, ChatCodec::Create(&tokenizer, std::move(codec)));
  const RowCheck scorable = [&](const std::string& data_source, const std::string& truth) {
    return reward.CheckRow(data_source, truth);
  };
  const int64_t vocab = tokenizer.vocab_size();
  TANDEM_ASSIGN_OR_RETURN(data.train,
                          LoadTrainPrompts(config.data(), *data.codec, vocab, scorable));
  std::set<std::string> sources;
  for (const Prompt& prompt : data.train.prompts) sources.insert(prompt.data_source);
  TANDEM_RETURN_IF_ERROR(CheckRewardKeys(config, reward, sources));
  TANDEM_ASSIGN_OR_RETURN(data.validation,
                          LoadValPrompts(config.data(), *data.codec, vocab, scorable));
  return data;
}

}  // namespace tandem
