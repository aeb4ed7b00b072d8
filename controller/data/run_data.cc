#include "controller/data/run_data.h"

#include <set>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "controller/data/jsonl_rows.h"
#include "controller/data/shuffled_prompts.h"
#include "controller/reward/check_reward.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

struct FileSet {
  std::vector<std::string> files;
  int64_t max_rows;
  bool shuffle_before_cut;
};

absl::StatusOr<std::vector<DataRow>> ReadRows(const v1::Data& config, const FileSet& set) {
  const ColumnNames columns{config.prompt_key(), config.reward_fn_key()};
  std::vector<DataRow> rows;
  for (const std::string& file : set.files) {
    TANDEM_ASSIGN_OR_RETURN(std::vector<DataRow> part, ReadJsonlRows(file, columns, -1));
    rows.insert(rows.end(), std::make_move_iterator(part.begin()),
                std::make_move_iterator(part.end()));
  }
  if (set.shuffle_before_cut && !rows.empty()) {
    const Permutation order(rows.size(), static_cast<uint64_t>(config.seed()), 0);
    std::vector<DataRow> shuffled;
    for (size_t i = 0; i < rows.size(); ++i) shuffled.push_back(rows[order(i)]);
    rows = std::move(shuffled);
  }
  if (set.max_rows >= 0 && static_cast<int64_t>(rows.size()) > set.max_rows) {
    rows.resize(static_cast<size_t>(set.max_rows));
  }
  return rows;
}

absl::StatusOr<Prompt> Tokenize(DataRow& row, const ChatCodec& codec) {
  Prompt prompt;
  if (row.messages.is_null()) {
    prompt.text = row.text;
    TANDEM_ASSIGN_OR_RETURN(prompt.tokens, codec.EncodeRaw(row.text));
  } else {
    TANDEM_ASSIGN_OR_RETURN(prompt.text, codec.RenderChat(row.messages));
    TANDEM_ASSIGN_OR_RETURN(prompt.tokens, codec.EncodeRendered(prompt.text));
  }
  prompt.data_source = std::move(row.data_source);
  prompt.ground_truth = std::move(row.ground_truth);
  prompt.extra_info_json = std::move(row.extra_info_json);
  if (prompt.tokens.empty()) return InvalidArgument("the prompt has no tokens");
  return prompt;
}

absl::Status CheckIds(const Prompt& prompt, int64_t vocab_limit) {
  for (int32_t id : prompt.tokens) {
    if (id < 0 || id >= vocab_limit) {
      return InvalidArgument("the prompt holds token id {}, the tokenizer has {} ids", id,
                             vocab_limit);
    }
  }
  return absl::OkStatus();
}

// Truncates to `limit` tokens on the side that data.truncation names.
void Truncate(const std::string& side, size_t limit, std::vector<int32_t>& tokens) {
  const auto excess = static_cast<std::ptrdiff_t>(tokens.size() - limit);
  if (side == "left") {
    tokens.erase(tokens.begin(), tokens.begin() + excess);
  } else if (side == "right") {
    tokens.resize(limit);
  } else {  // middle: keep both ends; for an odd limit the first is one token shorter
    const auto head = static_cast<std::ptrdiff_t>(limit / 2);
    tokens.erase(tokens.begin() + head, tokens.begin() + head + excess);
  }
}

absl::StatusOr<LoadedPrompts> Load(const v1::Data& config,
                                   const FileSet& set,
                                   const ChatCodec& codec,
                                   int64_t vocab_limit,
                                   const RowCheck& check) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<DataRow> rows, ReadRows(config, set));
  const auto limit = static_cast<size_t>(config.max_prompt_length());
  LoadedPrompts loaded;
  loaded.rows = static_cast<int64_t>(rows.size());
  for (DataRow& row : rows) {
    const std::string place = row.place;
    if (check) {
      const absl::Status scored = check(row.data_source, row.ground_truth);
      if (!scored.ok()) return Annotate(scored, place);
    }
    absl::StatusOr<Prompt> prompt = Tokenize(row, codec);
    if (!prompt.ok()) return Annotate(prompt.status(), place);
    const absl::Status ids = CheckIds(*prompt, vocab_limit);
    if (!ids.ok()) return Annotate(ids, place);
    if (prompt->tokens.size() > limit) {
      if (config.filter_overlong_prompts()) {
        ++loaded.filtered;
        continue;
      }
      if (config.truncation() == "error") {
        return InvalidArgument(
            "{}: the prompt has {} tokens, data.max_prompt_length is {}: raise it, set "
            "data.filter_overlong_prompts=true, or choose a data.truncation",
            place, prompt->tokens.size(), limit);
      }
      Truncate(config.truncation(), limit, prompt->tokens);
      ++loaded.truncated;
    }
    prompt->data_row = loaded.prompts.size();
    loaded.prompts.push_back(*std::move(prompt));
  }
  return loaded;
}

}  // namespace

absl::StatusOr<LoadedPrompts> LoadTrainPrompts(const v1::Data& config,
                                               const ChatCodec& codec,
                                               int64_t vocab_limit,
                                               const RowCheck& check) {
  const FileSet set{{config.train_files().begin(), config.train_files().end()},
                    config.train_max_samples(),
                    false};
  TANDEM_ASSIGN_OR_RETURN(LoadedPrompts loaded, Load(config, set, codec, vocab_limit, check));
  if (!loaded.prompts.empty()) return loaded;
  return InvalidArgument(
      "no training prompt is left: {} rows read, {} longer than data.max_prompt_length = {}",
      loaded.rows, loaded.filtered, config.max_prompt_length());
}

absl::StatusOr<LoadedPrompts> LoadValPrompts(const v1::Data& config,
                                             const ChatCodec& codec,
                                             int64_t vocab_limit,
                                             const RowCheck& check) {
  const FileSet set{{config.val_files().begin(), config.val_files().end()},
                    config.val_max_samples(),
                    config.validation_shuffle()};
  return Load(config, set, codec, vocab_limit, check);
}

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
