// Parses config.json. Every error names the file, the key and what to do.
#include <fstream>
#include <limits>
#include <sstream>

#include <nlohmann/json.hpp>

#include "common/base/json_nesting.h"
#include "common/base/status.h"
#include "common/model_spec/model_family.h"
#include "common/model_spec/model_spec.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// Several times the sizes of the largest models, but small enough that the bytes of weights, KV
// blocks and activations of any batch (common/model_spec) fit into 63 bits.
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxHidden = int64_t{1} << 17;
constexpr int64_t kMaxIntermediate = int64_t{1} << 19;
constexpr int64_t kMaxLayers = 512;
constexpr int64_t kMaxHeads = 512;
constexpr int64_t kMaxHeadDim = 512;
constexpr int64_t kMaxPosition = int64_t{1} << 31;

template <typename... Args>
absl::Status Unsupported(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kUnimplemented, format, std::forward<Args>(args)...);
}

bool IsSet(const Json& object, const char* key) {
  return object.contains(key) && !object.at(key).is_null();
}

// Reads members of one JSON object; keeps the error of the first malformed one.
class Reader {
 public:
  Reader(const Json& object, std::string source) : object_(object), source_(std::move(source)) {}

  const Json& object() const { return object_; }
  const std::string& source() const { return source_; }
  const absl::Status& status() const { return status_; }

  // From 1 to `most`.
  int64_t Size(const char* key, int64_t most) {
    if (!IsSet(object_, key)) {
      Fail(InvalidArgument("{}: key {} is missing", source_, key));
      return 1;
    }
    const Json& value = object_.at(key);
    if (!value.is_number_integer() || value.get<double>() < 1 ||
        value.get<double>() > static_cast<double>(most)) {
      Fail(InvalidArgument("{}: {} is {}, expected a whole number from 1 to {}", source_, key,
                           value.dump(), most));
      return 1;
    }
    return value.get<int64_t>();
  }
  int64_t SizeOr(const char* key, int64_t most, int64_t fallback) {
    return IsSet(object_, key) ? Size(key, most) : fallback;
  }
  double PositiveOr(const char* key, double fallback) {
    if (!IsSet(object_, key)) return fallback;
    const Json& value = object_.at(key);
    if (!value.is_number() || !(value.get<double>() > 0.0)) {
      Fail(InvalidArgument("{}: {} is {}, expected a number above 0", source_, key, value.dump()));
      return fallback;
    }
    return value.get<double>();
  }
  bool FlagOr(const char* key, bool fallback) {
    if (!IsSet(object_, key)) return fallback;
    const Json& value = object_.at(key);
    if (!value.is_boolean()) {
      Fail(InvalidArgument("{}: {} is {}, expected true or false", source_, key, value.dump()));
      return fallback;
    }
    return value.get<bool>();
  }
  std::string TextOr(const char* key, const std::string& fallback) {
    if (!IsSet(object_, key)) return fallback;
    const Json& value = object_.at(key);
    if (!value.is_string()) {
      Fail(InvalidArgument("{}: {} is {}, expected a string", source_, key, value.dump()));
      return fallback;
    }
    return value.get<std::string>();
  }
  // A token id or a list of them; absent and null give none.
  std::vector<int32_t> TokenIds(const char* key) {
    if (!IsSet(object_, key)) return {};
    const Json& value = object_.at(key);
    std::vector<int32_t> ids;
    for (const Json& id : value.is_array() ? value : Json::array({value})) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
        // Old configs write -1 for "no such token".
        if (id.is_number_integer() && id.get<int64_t>() == -1) continue;
        Fail(InvalidArgument("{}: {} holds {}, expected token ids", source_, key, id.dump()));
        return {};
      }
      ids.push_back(id.get<int32_t>());
    }
    return ids;
  }
  int32_t TokenId(const char* key) {
    const std::vector<int32_t> ids = TokenIds(key);
    return ids.empty() ? -1 : ids[0];
  }

 private:
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Json& object_;
  std::string source_;
  absl::Status status_;
};

absl::StatusOr<Json> ParseObject(const std::string& text, const std::string& source) {
  TANDEM_RETURN_IF_ERROR(Annotate(CheckJsonNesting(text), source));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return InvalidArgument("{} is not a JSON object ({} bytes): fetch the model again", source,
                           text.size());
  }
  return json;
}

absl::StatusOr<const ModelFamily*> FindFamily(const std::string& model_type,
                                              const std::string& source) {
  const ModelFamily* family = FindModelFamily(model_type);
  if (family != nullptr) return family;
  if (model_type.empty()) {
    return InvalidArgument("{}: key model_type is missing; is this a Hugging Face model directory?",
                           source);
  }
  return Unsupported("{}: model_type {} is not supported; use a {} model", source, model_type,
                     ModelFamilyNames());
}

absl::Status CheckSlidingWindow(Reader& reader, int64_t num_layers) {
  bool in_use = false;
  if (IsSet(reader.object(), "layer_types")) {
    for (const Json& type : reader.object().at("layer_types")) in_use |= type != "full_attention";
  } else if (reader.FlagOr("use_sliding_window", false) &&
             IsSet(reader.object(), "sliding_window")) {
    in_use = reader.SizeOr("max_window_layers", kMaxPosition, 28) < num_layers;
  }
  if (!in_use) return absl::OkStatus();
  return Unsupported(
      "{}: sliding-window attention is not supported; set use_sliding_window to false and every "
      "layer_types entry to full_attention only if sequences stay within the window",
      reader.source());
}

absl::Status CheckFeatures(Reader& reader, const ModelSpec& spec) {
  const std::string& source = reader.source();
  if (const std::string act = reader.TextOr("hidden_act", "silu"); act != "silu") {
    return Unsupported("{}: hidden_act {} is not supported, only silu is; use another model",
                       source, act);
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (spec.qkv_bias || !reader.FlagOr(key, false)) continue;
    return Unsupported("{}: {} is not supported for {}; use a model without it", source, key,
                       spec.model_type);
  }
  if (IsSet(reader.object(), "quantization_config")) {
    return Unsupported(
        "{}: quantised weights (quantization_config) are not supported; use the bf16 checkpoint",
        source);
  }
  if (reader.PositiveOr("partial_rotary_factor", 1.0) != 1.0) {
    return Unsupported("{}: partial_rotary_factor other than 1 is not supported; use another model",
                       source);
  }
  return CheckSlidingWindow(reader, spec.num_layers);
}

// One of the two objects that hold rope settings; the base stays as it is where `key` has none.
absl::Status ReadRopeObject(Reader& reader, const char* key, ModelSpec& spec) {
  spec.rope = {};
  if (!reader.object().at(key).is_object()) {
    return InvalidArgument("{}: {} is not an object", reader.source(), key);
  }
  Reader rope(reader.object().at(key), fmt::format("{}: {}", reader.source(), key));
  spec.rope_theta = rope.PositiveOr("rope_theta", spec.rope_theta);
  const std::string type = rope.TextOr("rope_type", rope.TextOr("type", "default"));
  if (type == "llama3") {
    spec.rope = {RopeScaling::Type::kLlama3, rope.PositiveOr("factor", 0.0),
                 rope.PositiveOr("low_freq_factor", 0.0), rope.PositiveOr("high_freq_factor", 0.0),
                 rope.Size("original_max_position_embeddings", kMaxPosition)};
    TANDEM_RETURN_IF_ERROR(rope.status());
    if (spec.rope.factor < 1.0 || spec.rope.low_freq_factor <= 0.0 ||
        spec.rope.high_freq_factor <= spec.rope.low_freq_factor) {
      return InvalidArgument(
          "{} needs factor >= 1 and 0 < low_freq_factor < high_freq_factor, has {}", rope.source(),
          rope.object().dump());
    }
  } else if (type != "default") {
    return Unsupported("{}: rope type {} is not supported, only default and llama3 are",
                       reader.source(), type);
  }
  return rope.status();
}

// Newer files keep base and scaling in rope_parameters; older ones in rope_theta and rope_scaling.
// If a file has both, they must agree, because readers differ in which they use.
absl::Status ReadRope(Reader& reader, ModelSpec& spec) {
  spec.rope_theta = reader.PositiveOr("rope_theta", 10000.0);
  const bool newer = IsSet(reader.object(), "rope_parameters");
  const bool older = IsSet(reader.object(), "rope_scaling");
  const ModelSpec plain = spec;
  if (older) TANDEM_RETURN_IF_ERROR(ReadRopeObject(reader, "rope_scaling", spec));
  if (!newer) return absl::OkStatus();
  const ModelSpec before = spec;
  spec = plain;
  TANDEM_RETURN_IF_ERROR(ReadRopeObject(reader, "rope_parameters", spec));
  if (older && before.rope != spec.rope) {
    return InvalidArgument(
        "{}: rope_parameters and rope_scaling say different things ({} and {}); keep the one that "
        "the model was trained with",
        reader.source(), reader.object().at("rope_parameters").dump(),
        reader.object().at("rope_scaling").dump());
  }
  if (IsSet(reader.object(), "rope_theta") && plain.rope_theta != spec.rope_theta) {
    return InvalidArgument(
        "{}: rope_theta is {} and rope_parameters says {}; keep the one that the model was trained "
        "with",
        reader.source(), plain.rope_theta, spec.rope_theta);
  }
  return absl::OkStatus();
}

absl::Status ReadSizes(Reader& reader, const ModelFamily& family, ModelSpec& spec) {
  spec.vocab_size = reader.Size("vocab_size", kMaxVocab);
  spec.hidden_size = reader.Size("hidden_size", kMaxHidden);
  spec.num_layers = reader.Size("num_hidden_layers", kMaxLayers);
  spec.num_heads = reader.Size("num_attention_heads", kMaxHeads);
  spec.num_kv_heads = reader.SizeOr("num_key_value_heads", kMaxHeads, spec.num_heads);
  spec.intermediate_size = reader.Size("intermediate_size", kMaxIntermediate);
  spec.max_position = reader.SizeOr("max_position_embeddings", kMaxPosition, 2048);
  const double eps = reader.PositiveOr("rms_norm_eps", 1e-6);
  if (eps < std::numeric_limits<float>::min() || eps > 1.0) {
    return InvalidArgument("{}: rms_norm_eps is {}, expected a number from {} to 1",
                           reader.source(), eps, std::numeric_limits<float>::min());
  }
  spec.rms_norm_eps = static_cast<float>(eps);
  const bool head_dim_given = IsSet(reader.object(), "head_dim");
  const bool derived = !head_dim_given && family.default_head_dim == 0;
  const int64_t default_head_dim =
      derived ? spec.hidden_size / spec.num_heads : family.default_head_dim;
  spec.head_dim = head_dim_given ? reader.Size("head_dim", kMaxHeadDim) : default_head_dim;
  TANDEM_RETURN_IF_ERROR(reader.status());
  if (derived && spec.hidden_size % spec.num_heads != 0) {
    return InvalidArgument("{}: hidden_size {} is not a multiple of num_attention_heads {}",
                           reader.source(), spec.hidden_size, spec.num_heads);
  }
  if (spec.num_heads % spec.num_kv_heads != 0) {
    return InvalidArgument("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}",
                           reader.source(), spec.num_heads, spec.num_kv_heads);
  }
  if (spec.head_dim > kMaxHeadDim) {
    return InvalidArgument(
        "{}: hidden_size {} / num_attention_heads {} is a head of {}; at most {}", reader.source(),
        spec.hidden_size, spec.num_heads, spec.head_dim, kMaxHeadDim);
  }
  if (spec.head_dim % 2 != 0 || spec.head_dim < 2) {
    return InvalidArgument("{}: head_dim {} is odd; rotary embedding needs pairs", reader.source(),
                           spec.head_dim);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) {
    return MakeStatus(absl::StatusCode::kNotFound,
                      "{} cannot be read: give a Hugging Face model directory", path);
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

absl::StatusOr<ModelSpec> ParseModelSpec(const std::string& config,
                                         const std::string& generation_config,
                                         const std::string& source) {
  TANDEM_ASSIGN_OR_RETURN(const Json json, ParseObject(config, source));
  Reader reader(json, source);
  ModelSpec spec;
  spec.model_type = reader.TextOr("model_type", "");
  TANDEM_ASSIGN_OR_RETURN(const ModelFamily* family, FindFamily(spec.model_type, source));
  spec.qkv_bias = family->qkv_bias;
  spec.qk_norm = family->qk_norm;
  TANDEM_RETURN_IF_ERROR(ReadSizes(reader, *family, spec));
  TANDEM_RETURN_IF_ERROR(CheckFeatures(reader, spec));
  TANDEM_RETURN_IF_ERROR(ReadRope(reader, spec));
  spec.tie_word_embeddings = reader.FlagOr("tie_word_embeddings", false);
  spec.bos_token_id = reader.TokenId("bos_token_id");
  spec.pad_token_id = reader.TokenId("pad_token_id");
  spec.eos_token_ids = reader.TokenIds("eos_token_id");
  TANDEM_RETURN_IF_ERROR(reader.status());
  if (generation_config.empty()) return spec;
  const std::string generation_source = source + " (generation_config.json)";
  TANDEM_ASSIGN_OR_RETURN(const Json generation, ParseObject(generation_config, generation_source));
  Reader generation_reader(generation, generation_source);
  const std::vector<int32_t> eos = generation_reader.TokenIds("eos_token_id");
  TANDEM_RETURN_IF_ERROR(generation_reader.status());
  if (!eos.empty()) spec.eos_token_ids = eos;
  return spec;
}

absl::StatusOr<ModelSpec> LoadModelSpec(const std::string& model_dir) {
  const std::string path = model_dir + "/config.json";
  TANDEM_ASSIGN_OR_RETURN(const std::string config, ReadText(path));
  const absl::StatusOr<std::string> generation = ReadText(model_dir + "/generation_config.json");
  return ParseModelSpec(config, generation.ok() ? *generation : std::string(), path);
}

}  // namespace tandem
