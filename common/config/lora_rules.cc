#include "common/config/lora_rules.h"

#include <string>
#include <utility>

#include "tandem/v1/config.pb.h"

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
  require(
      lora.dropout() == 0 || !lora.merge(), {"model.lora.dropout", "model.lora.merge"},
      "model.lora.dropout drops inputs of adapters, and with model.lora.merge=true they have no "
      "input of their own: set dropout to 0, or model.lora.merge=false");
  require(
      lora.dropout() < 1, {"model.lora.dropout"},
      "model.lora.dropout=1 drops every input of the adapters, which then learn nothing: set it "
      "to 0 or more and below 1");
  require(lora.dropout() == 0 || config.trainer().device() != "cuda",
          {"model.lora.dropout", "trainer.device"},
          "model.lora.dropout is built for CPUs only so far: set dropout to 0, or "
          "trainer.device=cpu");
  require(!config.actor().fsdp_config().param_offload(),
          {"actor.fsdp_config.param_offload", "model.lora.rank"},
          "actor.fsdp_config.param_offload=true moves the masters away, and with model.lora only "
          "the adapters have some: set it to false");
  require(
      !config.ref().offload(), {"ref.offload", "model.lora.rank"},
      "ref.offload=true moves the reference policy away, which with model.lora is the base that "
      "is trained on, without a copy: set it to false");
  return problems;
}

}  // namespace tandem
