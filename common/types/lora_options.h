// The LoRA adapters that a run trains: the values of model.lora.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

struct LoraOptions {
  int64_t rank = 0;  // 0: none
  double alpha = 0;
  // Entries as in common/lora/lora_spec.h: all-linear, names or ends of names, regular
  // expressions.
  std::vector<std::string> target_modules;
  std::vector<std::string> exclude_modules;
  // Raw parameters, names or ends of names at a dot: "q_proj.weight".
  std::vector<std::string> target_parameters;
  bool merge = true;   // false: adapters are computed separately (ModelAdapters)
  double dropout = 0;  // fraction of an adapter's input dropped in training, with merge=false
};

}  // namespace tandem
