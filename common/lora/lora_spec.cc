#include "common/lora/lora_spec.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <absl/strings/match.h>
#include <absl/strings/str_join.h>

#include "common/base/status.h"
#include "common/types/tensor_view.h"

namespace tandem {
namespace {

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

}  // namespace

bool IsAllLinear(const std::string& entry) { return absl::EqualsIgnoreCase(entry, kAllLinear); }

absl::StatusOr<ModulePattern> ModulePattern::Create(const std::string& key,
                                                    const std::string& entry) {
  if (entry.empty()) {
    return InvalidArgument("{} has an empty entry, which names no module: take it out", key);
  }
  ModulePattern pattern;
  pattern.text_ = entry;
  if (std::all_of(entry.begin(), entry.end(), IsWordCharacter)) return pattern;
  absl::StatusOr<Regex> regex = Regex::CompilePython(entry);
  if (!regex.ok()) {
    return InvalidArgument(
        "{}: {}: write a regular expression of Python's, or a name such as q_proj", key,
        std::string(regex.status().message()));
  }
  pattern.regex_ = *std::move(regex);
  return pattern;
}

absl::StatusOr<bool> ModulePattern::Matches(const std::string& module) const {
  if (regex_.has_value()) return regex_->MatchesWhole(module);
  return module == text_ || absl::EndsWith(module, "." + text_);
}

namespace {

constexpr char kEmbedding[] = "model.embed_tokens";
constexpr char kHead[] = "lm_head";
constexpr char kWeight[] = ".weight";

// A module of the model, with why it cannot have an adapter ("" where it can).
struct Candidate {
  LoraTarget target;
  std::string obstacle;
};

std::string Obstacle(const ModelSpec& model, const std::string& module, size_t dims) {
  if (module == kHead && model.tie_word_embeddings) {
    return "is the embedding, to which config.json ties it: an adapter would change both";
  }
  if (module == kHead) return "is the LM head, which is served as it is";
  if (module == kEmbedding) {
    return model.tie_word_embeddings
               ? "is an embedding that the LM head is tied to: an adapter would change both"
               : "is an embedding, not a linear layer";
  }
  return dims == 2 ? "" : "is a norm, not a linear layer";
}

// In the order of HfTensors; a tied head, which has no tensor, comes last.
std::vector<Candidate> Candidates(const ModelSpec& model) {
  std::vector<Candidate> candidates;
  const std::vector<TensorSpec> tensors = HfTensors(model);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& tensor = tensors[i];
    if (!absl::EndsWith(tensor.name, kWeight)) continue;
    Candidate& candidate = candidates.emplace_back();
    candidate.target.module = tensor.name.substr(0, tensor.name.size() - (sizeof(kWeight) - 1));
    candidate.target.weight = tensor.name;
    candidate.target.layer = tensor.layer;
    candidate.target.out = tensor.shape[0];
    candidate.target.in = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
    candidate.target.tensor = static_cast<int64_t>(i);
    candidate.obstacle = Obstacle(model, candidate.target.module, tensor.shape.size());
  }
  if (model.tie_word_embeddings) {
    Candidate& head = candidates.emplace_back();
    head.target.module = kHead;
    head.target.weight = std::string(kHead) + kWeight;
    head.obstacle = Obstacle(model, kHead, 2);
  }
  return candidates;
}

std::string KnownModules(const std::vector<Candidate>& candidates) {
  std::set<std::string> ends;
  for (const Candidate& candidate : candidates) {
    const std::string& module = candidate.target.module;
    if (candidate.obstacle.empty()) ends.insert(module.substr(module.rfind('.') + 1));
  }
  return absl::StrJoin(ends, ", ");
}

// Selects the targets, entry by entry.
class Choice {
 public:
  Choice(const std::vector<Candidate>& candidates, UnmatchedEntry unmatched)
      : candidates_(candidates), unmatched_(unmatched), chosen_(candidates.size(), false) {}

  absl::Status Exclude(const std::vector<std::string>& entries) {
    excluded_.assign(candidates_.size(), false);
    for (const std::string& entry : entries) {
      TANDEM_ASSIGN_OR_RETURN(const auto pattern, ModulePattern::Create("exclude_modules", entry));
      bool any = false;
      for (size_t i = 0; i < candidates_.size(); ++i) {
        TANDEM_ASSIGN_OR_RETURN(const bool match, pattern.Matches(candidates_[i].target.module));
        if (!match) continue;
        excluded_[i] = true;
        any = true;
      }
      if (!any) TANDEM_RETURN_IF_ERROR(Unmatched("exclude_modules", entry));
    }
    return absl::OkStatus();
  }

  absl::Status AddModules(const std::vector<std::string>& entries) {
    for (const std::string& entry : entries) {
      TANDEM_RETURN_IF_ERROR(IsAllLinear(entry) ? AddAllLinear() : AddModule(entry));
    }
    return absl::OkStatus();
  }

  // PEFT's excludes apply to modules only: a named parameter is always taken.
  absl::Status AddParameters(const ModelSpec& model, const std::vector<std::string>& entries) {
    for (const std::string& entry : entries) {
      TANDEM_RETURN_IF_ERROR(AddParameter(model, entry));
    }
    return absl::OkStatus();
  }

  const std::vector<bool>& chosen() const { return chosen_; }

 private:
  absl::Status Unmatched(const std::string& key, const std::string& entry) const {
    if (unmatched_ == UnmatchedEntry::kIgnore) return absl::OkStatus();
    return InvalidArgument("{}: {} matches no module of the model: name some of {}, or take it out",
                           key, entry, KnownModules(candidates_));
  }

  absl::Status Take(const std::string& key, const std::string& entry, size_t i) {
    if (!candidates_[i].obstacle.empty()) {
      return InvalidArgument("{}: {} matches {}, which {}: name other modules, or exclude it", key,
                             entry, candidates_[i].target.module, candidates_[i].obstacle);
    }
    chosen_[i] = true;
    return absl::OkStatus();
  }

  absl::Status AddAllLinear() {
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].obstacle.empty() && !excluded_[i]) chosen_[i] = true;
    }
    return absl::OkStatus();
  }

  absl::Status AddModule(const std::string& entry) {
    TANDEM_ASSIGN_OR_RETURN(const auto pattern, ModulePattern::Create("target_modules", entry));
    bool any = false;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      TANDEM_ASSIGN_OR_RETURN(const bool match, pattern.Matches(candidates_[i].target.module));
      if (!match) continue;
      any = true;
      if (!excluded_[i]) TANDEM_RETURN_IF_ERROR(Take("target_modules", entry, i));
    }
    return any ? absl::OkStatus() : Unmatched("target_modules", entry);
  }

  absl::Status AddParameter(const ModelSpec& model, const std::string& entry) {
    bool any = false;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const std::string& weight = candidates_[i].target.weight;
      if (weight != entry && !absl::EndsWith(weight, "." + entry)) continue;
      any = true;
      TANDEM_RETURN_IF_ERROR(Take("target_parameters", entry, i));
    }
    if (any) return absl::OkStatus();
    for (const TensorSpec& tensor : HfTensors(model)) {
      if (tensor.name != entry && !absl::EndsWith(tensor.name, "." + entry)) continue;
      return InvalidArgument(
          "target_parameters: {} matches {} {}, and an adapter needs two dimensions: name a "
          "weight, such as q_proj.weight",
          entry, tensor.name, ShapeText(tensor.shape));
    }
    return InvalidArgument(
        "target_parameters: {} is not a parameter of this {} model: name one such as "
        "q_proj.weight, "
        "or leave the list out",
        entry, model.model_type);
  }

  const std::vector<Candidate>& candidates_;
  const UnmatchedEntry unmatched_;
  std::vector<bool> chosen_;
  std::vector<bool> excluded_;
};

absl::Status CheckNumbers(const LoraOptions& options) {
  if (options.rank < 1) {
    return InvalidArgument("rank {} gives adapters without rows: it must be 1 or more",
                           options.rank);
  }
  if (!std::isfinite(options.alpha) || options.alpha <= 0) {
    return InvalidArgument(
        "alpha {} is not a finite number above 0: give the one that the adapter is trained with",
        options.alpha);
  }
  if (options.target_modules.empty() && options.target_parameters.empty()) {
    return InvalidArgument(
        "target_modules and target_parameters name nothing: set target_modules, to "
        "all-linear for every linear layer but the LM head");
  }
  return absl::OkStatus();
}

// Ends of names, if they select the same modules as the complete names.
std::vector<std::string> ShortNames(const std::vector<Candidate>& candidates,
                                    const std::vector<bool>& chosen) {
  std::map<std::string, bool> whole;  // by end: whether all modules with that end are chosen
  const auto end_of = [](const Candidate& candidate) {
    const std::string& module = candidate.target.module;
    return module.substr(module.rfind('.') + 1);
  };
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto [at, first] = whole.emplace(end_of(candidates[i]), true);
    at->second = at->second && chosen[i];
  }
  std::set<std::string> names;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!chosen[i]) continue;
    const std::string end = end_of(candidates[i]);
    names.insert(whole.at(end) ? end : candidates[i].target.module);
  }
  return {names.begin(), names.end()};
}

}  // namespace

int64_t LoraSpec::parameters() const {
  int64_t count = 0;
  for (const LoraTarget& target : targets) count += rank * (target.in + target.out);
  return count;
}

const LoraTarget* LoraSpec::Find(const std::string& weight) const {
  for (const LoraTarget& target : targets) {
    if (target.weight == weight) return &target;
  }
  return nullptr;
}

std::string LoraTensorName(const LoraTarget& target, LoraMatrix matrix) {
  return fmt::format("base_model.model.{}.lora_{}.weight", target.module,
                     matrix == LoraMatrix::kA ? "A" : "B");
}

std::vector<int64_t> LoraTensorShape(const LoraTarget& target, LoraMatrix matrix, int64_t rank) {
  if (matrix == LoraMatrix::kA) return {rank, target.in};
  return {target.out, rank};
}

absl::StatusOr<LoraSpec> MakeLoraSpec(const ModelSpec& model,
                                      const LoraOptions& options,
                                      UnmatchedEntry unmatched) {
  TANDEM_RETURN_IF_ERROR(CheckNumbers(options));
  const std::vector<Candidate> candidates = Candidates(model);
  Choice choice(candidates, unmatched);
  TANDEM_RETURN_IF_ERROR(choice.Exclude(options.exclude_modules));
  TANDEM_RETURN_IF_ERROR(choice.AddModules(options.target_modules));
  TANDEM_RETURN_IF_ERROR(choice.AddParameters(model, options.target_parameters));
  LoraSpec spec;
  spec.rank = options.rank;
  spec.alpha = options.alpha;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (choice.chosen()[i]) spec.targets.push_back(candidates[i].target);
  }
  if (spec.targets.empty()) {
    return InvalidArgument(
        "target_modules [{}] without exclude_modules [{}] leaves no module of the model: name some "
        "of {}",
        absl::StrJoin(options.target_modules, ", "), absl::StrJoin(options.exclude_modules, ", "),
        KnownModules(candidates));
  }
  spec.target_modules = ShortNames(candidates, choice.chosen());
  return spec;
}

absl::StatusOr<ModelSpec> WithAdapters(ModelSpec model, const LoraOptions& options) {
  if (options.rank == 0 || options.merge) return model;
  TANDEM_ASSIGN_OR_RETURN(const LoraSpec lora, MakeLoraSpec(model, options));
  model.adapters = {.rank = lora.rank, .scaling = lora.scaling()};
  for (const LoraTarget& target : lora.targets) model.adapters.weights.push_back(target.weight);
  return model;
}

absl::Status SameLora(const LoraSpec& wanted,
                      const std::string& wanted_source,
                      const LoraSpec& found,
                      const std::string& found_source) {
  if (wanted.rank != found.rank) {
    return InvalidArgument("{} has rank {}, {} has rank {}: set model.lora.rank={}", wanted_source,
                           wanted.rank, found_source, found.rank, found.rank);
  }
  if (wanted.alpha != found.alpha) {
    return InvalidArgument("{} has alpha {}, {} has alpha {}: set model.lora.alpha={}",
                           wanted_source, wanted.alpha, found_source, found.alpha, found.alpha);
  }
  const auto only_in = [](const LoraSpec& one, const LoraSpec& other) -> const LoraTarget* {
    for (const LoraTarget& target : one.targets) {
      if (other.Find(target.weight) == nullptr) return &target;
    }
    return nullptr;
  };
  if (const LoraTarget* target = only_in(wanted, found)) {
    return InvalidArgument(
        "{} has an adapter on {}, {} has none: set model.lora.target_modules=[{}]", wanted_source,
        target->module, found_source, absl::StrJoin(found.target_modules, ", "));
  }
  if (const LoraTarget* target = only_in(found, wanted)) {
    return InvalidArgument(
        "{} has an adapter on {}, {} has none: set model.lora.target_modules=[{}]", found_source,
        target->module, wanted_source, absl::StrJoin(found.target_modules, ", "));
  }
  return absl::OkStatus();
}

}  // namespace tandem
