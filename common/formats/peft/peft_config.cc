#include "common/formats/peft/peft_config.h"

#include <cmath>
#include <filesystem>

#include <absl/strings/match.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/json_nesting.h"
#include "common/base/status.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Features that Tandem does not train or merge: refused if the key is set to anything.
struct Unsupported {
  const char* key;
  const char* what;
  const char* remedy;
};
constexpr char kTrainPlain[] = "train a plain LoRA adapter";
constexpr char kMergeWithPeft[] =
    "merge it into its base with PEFT, and give the merged model as model.path";
constexpr Unsupported kUnsupported[] = {
    {"use_dora", "DoRA rescales the columns of the merged weight", kMergeWithPeft},
    {"use_rslora", "rsLoRA scales by alpha / sqrt(r), not alpha / r",
     "set lora_alpha to lora_alpha * sqrt(r) and use_rslora to false, which is the same adapter"},
    {"modules_to_save", "whole modules are stored in addition to the adapter", kMergeWithPeft},
    {"fan_in_fan_out", "the base's weights would be transposed", kMergeWithPeft},
    {"rank_pattern", "one rank holds for all modules", kMergeWithPeft},
    {"alpha_pattern", "one alpha holds for all modules", kMergeWithPeft},
    {"lora_bias", "B would have a bias", kMergeWithPeft},
    {"layers_to_transform", "layers are not chosen by number",
     "put the whole names of the modules into target_modules"},
    {"layer_replication", "one layer would be used several times", kMergeWithPeft},
    {"trainable_token_indices", "rows of the embedding are stored in addition to the adapter",
     kMergeWithPeft},
    {"use_qalora", "the input would be pooled", kTrainPlain},
    {"use_bdlora", "B or A would be block-diagonal", kTrainPlain},
    {"alora_invocation_tokens", "the adapter would act behind some tokens only", kTrainPlain},
    {"velora_config", "this variant is not known", kTrainPlain},
    {"kasa_config", "this variant is not known", kTrainPlain},
    {"monteclora_config", "this variant is not known", kTrainPlain},
    {"arrow_config", "several adapters would be mixed", kTrainPlain},
};

// null, false, 0, "", [] and {} are how PEFT writes "not set".
bool IsSet(const OrderedJson& config, const char* key) {
  const auto at = config.find(key);
  if (at == config.end() || at->is_null()) return false;
  if (at->is_boolean()) return at->get<bool>();
  if (at->is_number()) return at->get<double>() != 0;
  if (at->is_string()) return !at->get<std::string>().empty();
  return !at->empty();
}

std::string Dump(const OrderedJson& config, const char* key) {
  return config.contains(key) ? config.at(key).dump() : "missing";
}

absl::Status Unimplemented(const std::string& message) { return absl::UnimplementedError(message); }

absl::Status CheckVariants(const OrderedJson& config, const std::string& source) {
  for (const Unsupported& entry : kUnsupported) {
    if (!IsSet(config, entry.key)) continue;
    return Unimplemented(fmt::format("{}: {} is {}, which is not supported ({}): {}", source,
                                     entry.key, Dump(config, entry.key), entry.what, entry.remedy));
  }
  if (IsSet(config, "bias") && config.at("bias") != "none") {
    return Unimplemented(
        fmt::format("{}: bias is {}, and only \"none\" is supported, since adapters "
                    "change no bias: {}",
                    source, Dump(config, "bias"), kMergeWithPeft));
  }
  const auto init = config.find("init_lora_weights");
  if (init == config.end() || !init->is_string()) return absl::OkStatus();
  const std::string name = init->get<std::string>();
  for (const char* changing : {"pissa", "olora", "loftq", "corda", "lora_ga"}) {
    if (!absl::StartsWithIgnoreCase(name, changing)) continue;
    return Unimplemented(fmt::format(
        "{}: init_lora_weights is {}, which changes the base's weights too, so that the adapter "
        "does not belong to the model on disk: save it with PEFT's path_initial_model_for_weight_"
        "conversion, which makes it a plain one",
        source, name));
  }
  return absl::OkStatus();
}

absl::Status CheckKind(const OrderedJson& config, const std::string& source) {
  if (Dump(config, "peft_type") != "\"LORA\"") {
    return InvalidArgument("{}: peft_type is {}, expected \"LORA\": give a LoRA adapter", source,
                           Dump(config, "peft_type"));
  }
  if (IsSet(config, "task_type") && config.at("task_type") != "CAUSAL_LM") {
    return InvalidArgument(
        "{}: task_type is {}, expected \"CAUSAL_LM\": give an adapter of a "
        "language model",
        source, Dump(config, "task_type"));
  }
  return absl::OkStatus();
}

absl::Status ReadNumbers(const OrderedJson& config, const std::string& source, PeftConfig& out) {
  const auto rank = config.find("r");
  if (rank == config.end() || !rank->is_number_integer() || rank->get<int64_t>() < 1) {
    return InvalidArgument(
        "{}: r is {}, expected the rank, a whole number of 1 or more: take it "
        "from the run that trained the adapter",
        source, Dump(config, "r"));
  }
  out.lora.rank = rank->get<int64_t>();
  const auto alpha = config.find("lora_alpha");
  if (alpha == config.end() || !alpha->is_number() || !std::isfinite(alpha->get<double>()) ||
      alpha->get<double>() <= 0) {
    return InvalidArgument(
        "{}: lora_alpha is {}, expected a number above 0, and none is assumed: "
        "take it from the run that trained the adapter",
        source, Dump(config, "lora_alpha"));
  }
  out.lora.alpha = alpha->get<double>();
  if (!IsSet(config, "lora_dropout")) return absl::OkStatus();
  const OrderedJson& dropout = config.at("lora_dropout");
  if (!dropout.is_number() || dropout.get<double>() < 0 || dropout.get<double>() >= 1) {
    return InvalidArgument(
        "{}: lora_dropout is {}, expected a number from 0 to below 1: correct it", source,
        dropout.dump());
  }
  out.dropout = dropout.get<double>();
  return absl::OkStatus();
}

// A text, a list of texts, or null.
absl::Status ReadNames(const OrderedJson& config,
                       const std::string& source,
                       const char* key,
                       std::vector<std::string>& out) {
  if (!IsSet(config, key)) return absl::OkStatus();
  const OrderedJson& value = config.at(key);
  const OrderedJson list = value.is_string() ? OrderedJson::array({value}) : value;
  bool all_text = list.is_array();
  for (const OrderedJson& entry : list) all_text = all_text && entry.is_string();
  if (!all_text) {
    return InvalidArgument("{}: {} is {}, expected a name or a list of names: write it so", source,
                           key, value.dump());
  }
  out = list.get<std::vector<std::string>>();
  return absl::OkStatus();
}

// PEFT writes whole numbers without a point.
OrderedJson NumberJson(double value) {
  if (value == std::floor(value) && std::abs(value) < 0x1p53) return static_cast<int64_t>(value);
  return value;
}

}  // namespace

absl::StatusOr<PeftConfig> ParsePeftConfig(const std::string& text, const std::string& source) {
  TANDEM_RETURN_IF_ERROR(Annotate(CheckJsonNesting(text), source));
  const OrderedJson config = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return InvalidArgument("{} is not a JSON object: give the file that PEFT wrote", source);
  }
  TANDEM_RETURN_IF_ERROR(CheckKind(config, source));
  TANDEM_RETURN_IF_ERROR(CheckVariants(config, source));
  PeftConfig parsed;
  TANDEM_RETURN_IF_ERROR(ReadNumbers(config, source, parsed));
  LoraOptions& lora = parsed.lora;
  TANDEM_RETURN_IF_ERROR(ReadNames(config, source, "target_modules", lora.target_modules));
  TANDEM_RETURN_IF_ERROR(ReadNames(config, source, "exclude_modules", lora.exclude_modules));
  TANDEM_RETURN_IF_ERROR(ReadNames(config, source, "target_parameters", lora.target_parameters));
  if (IsSet(config, "base_model_name_or_path") &&
      config.at("base_model_name_or_path").is_string()) {
    parsed.base_model = config.at("base_model_name_or_path").get<std::string>();
  }
  return parsed;
}

std::string PeftConfigJson(const LoraSpec& spec, const std::string& base_model, double dropout) {
  const OrderedJson config = {{"alpha_pattern", OrderedJson::object()},
                              {"auto_mapping", nullptr},
                              {"base_model_name_or_path", base_model},
                              {"bias", "none"},
                              {"exclude_modules", nullptr},
                              {"fan_in_fan_out", false},
                              {"inference_mode", true},
                              {"init_lora_weights", true},
                              {"layers_pattern", nullptr},
                              {"layers_to_transform", nullptr},
                              {"lora_alpha", NumberJson(spec.alpha)},
                              {"lora_bias", false},
                              {"lora_dropout", dropout},
                              {"modules_to_save", nullptr},
                              {"peft_type", "LORA"},
                              {"r", spec.rank},
                              {"rank_pattern", OrderedJson::object()},
                              {"revision", nullptr},
                              {"target_modules", spec.target_modules},
                              {"target_parameters", nullptr},
                              {"task_type", "CAUSAL_LM"},
                              {"use_dora", false},
                              {"use_rslora", false}};
  return config.dump(2) + "\n";
}

namespace {

constexpr char kCached[] = "models--";

}  // namespace

std::string BaseName(const std::string& base) {
  std::filesystem::path path(base);
  if (!path.has_filename()) path = path.parent_path();
  const std::filesystem::path cached = path.parent_path().parent_path().filename();
  if (path.parent_path().filename() != "snapshots" || !cached.string().starts_with(kCached)) {
    return path.filename();
  }
  const std::string name = cached.string().substr(sizeof(kCached) - 1);
  const size_t org = name.find("--");
  return org == std::string::npos ? name : name.substr(org + 2);
}

std::string OtherBase(const PeftConfig& config,
                      const std::string& adapter,
                      const std::string& base) {
  const std::string& named = config.base_model;
  if (named.empty() || BaseName(named) == BaseName(base)) return "";
  return fmt::format("{} names {} as its base, and this is {}: only names and shapes are compared",
                     adapter, named, base);
}

}  // namespace tandem
