// The adapters of a run: which weights of a model have them, and the patterns of modules, in PEFT's
// sense, that select them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/model_spec/model_spec.h"
#include "common/text/unicode/regex.h"
#include "common/types/lora_options.h"

namespace tandem {

inline constexpr char kAllLinear[] = "all-linear";

// "all-linear", in any case.
bool IsAllLinear(const std::string& entry);

// One entry of a list of modules, as PEFT reads it: a name, the end of a name, or a regular
// expression. Immutable and thread-safe.
class ModulePattern {
 public:
  // A word of letters, digits, _ and . matches the module of that name and modules whose name ends
  // in it after a dot. Anything else is a regular expression for the complete name, with the syntax
  // of Python's re, as in PEFT. InvalidArgument: an empty entry, or an expression that is refused;
  // `key` names the list in errors.
  static absl::StatusOr<ModulePattern> Create(const std::string& key, const std::string& entry);

  const std::string& text() const { return text_; }
  // ResourceExhausted: the expression backtracks too much.
  absl::StatusOr<bool> Matches(const std::string& module) const;

 private:
  std::string text_;
  std::optional<Regex> regex_;
};

// Which weights of a model get low-rank adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large
// Language Models", 2021): W + alpha / rank * B A with A [rank, in] and B [out, rank]. Names and
// the choice of modules follow PEFT (huggingface/peft), so that adapters go in and out unchanged.
struct LoraTarget {
  std::string module;  // "model.layers.3.self_attn.q_proj"
  std::string weight;  // the HF tensor: module + ".weight"
  int layer = -1;
  int64_t out = 0;
  int64_t in = 0;
  int64_t tensor =
      0;  // position of `weight` in HfTensors, which does not depend on the other targets
};

enum class LoraMatrix { kA, kB };

struct LoraSpec {
  int64_t rank = 0;
  double alpha = 0;
  std::vector<LoraTarget> targets;  // in the order of HfTensors
  // The target_modules of adapter_config.json, sorted: the end of a name if all modules with that
  // end, and no others, are targets; else complete names.
  std::vector<std::string> target_modules;

  double scaling() const { return alpha / static_cast<double>(rank); }
  int64_t parameters() const;  // elements of every A and B
  // nullptr if the weight (HF tensor name) has no adapter.
  const LoraTarget* Find(const std::string& weight) const;
};

// PEFT's file spelling: "base_model.model.<module>.lora_A.weight".
std::string LoraTensorName(const LoraTarget& target, LoraMatrix matrix);
// A: [rank, in]; B: [out, rank].
std::vector<int64_t> LoraTensorShape(const LoraTarget& target, LoraMatrix matrix, int64_t rank);

// How to treat an entry that matches no module of the model: in a config it is a mistake, but PEFT
// writes adapters with such entries if others match.
enum class UnmatchedEntry { kRefuse, kIgnore };

// InvalidArgument names the entry, the reason and the remedy: a rank below 1; an alpha that is not
// finite and above 0; entries that match nothing; an embedding, an LM head (tied or not), norms or
// biases; an invalid regular expression; excludes that leave no target.
absl::StatusOr<LoraSpec> MakeLoraSpec(const ModelSpec& model,
                                      const LoraOptions& options,
                                      UnmatchedEntry unmatched = UnmatchedEntry::kRefuse);

// The model as it is computed: `model` itself if `options` have no adapters or merge them, else
// `model` with separate adapters. Errors as MakeLoraSpec.
absl::StatusOr<ModelSpec> WithAdapters(ModelSpec model, const LoraOptions& options);

// InvalidArgument: two specs differ in rank, alpha or targets. The message names both values and
// the config key to change, since a stored adapter (`found`) cannot change. `wanted_source` and
// `found_source` say where each comes from: "model.lora", "runs/a/adapter".
absl::Status SameLora(const LoraSpec& wanted,
                      const std::string& wanted_source,
                      const LoraSpec& found,
                      const std::string& found_source);

}  // namespace tandem
