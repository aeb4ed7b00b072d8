#include "common/config/lora_rules.h"

#include <string>
#include <utility>

namespace tandem {

std::vector<KeyProblem> LoraProblems(const v1::Config& config) {
  const v1::Lora& lora = config.model().lora();
  std::vector<KeyProblem> problems;
  const auto require = [&problems](bool ok, std::vector<std::string> keys, std::string text) {
    if (!ok) problems.push_back({std::move(keys), std::move(text)});
  };
  if (lora.rank() == 0) {
    require(!config.actor().checkpoint().save_lora_only(),
            {"actor.checkpoint.save_lora_only", "model.lora.rank"},
            "actor.checkpoint.save_lora_only=true saves adapters, and model.lora.rank=0 has none: "
            "give it a rank, or set save_lora_only to false");
    require(lora.adapter_path().empty(), {"model.lora.adapter_path", "model.lora.rank"},
            "model.lora.adapter_path names adapters, and model.lora.rank=0 trains all weights: set "
            "the rank to theirs, or leave the path out");
    return problems;
  }
  require(false, {"model.lora.rank"},
          "model.lora.rank above 0 is not trained with yet: set it to 0");
  return problems;
}

}  // namespace tandem
