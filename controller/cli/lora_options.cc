#include "controller/cli/lora_options.h"

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

}  // namespace tandem
