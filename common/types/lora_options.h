// Which adapters a run trains: model.lora as it is asked for.
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
  bool merge = true;   // false: adapters are computed beside their weights (ModelAdapters)
  double dropout = 0;  // share of an adapter's input that a training pass drops, with merge=false
};

}  // namespace tandem
