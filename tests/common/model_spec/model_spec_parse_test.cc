#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/model_spec/model_spec.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using PlainJson = nlohmann::json;

PlainJson LlamaConfig() {
  return {{"model_type", "llama"},    {"vocab_size", 256},
          {"hidden_size", 64},        {"num_hidden_layers", 2},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"intermediate_size", 128}, {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},     {"rope_theta", 100000.0},
          {"bos_token_id", 1},        {"eos_token_id", 2}};
}

absl::StatusOr<ModelSpec> Parse(const PlainJson& config, const std::string& generation = "") {
  return ParseModelSpec(config.dump(), generation, "config.json");
}

// The message of a refusal, after checking its code.
std::string ParseRefusal(const PlainJson& config, absl::StatusCode code) {
  const absl::StatusOr<ModelSpec> spec = Parse(config);
  REQUIRE(!spec.ok());
  REQUIRE(spec.status().code() == code);
  return std::string(spec.status().message());
}

std::string Unsupported(const std::string& key,
                        const PlainJson& value,
                        PlainJson config = LlamaConfig()) {
  config[key] = value;
  return ParseRefusal(config, absl::StatusCode::kUnimplemented);
}

}  // namespace

TEST_CASE("A llama config is read with the derived head size", "[model_spec]") {
  const ModelSpec spec = Parse(LlamaConfig()).value();
  REQUIRE(spec.model_type == "llama");
  REQUIRE(spec.head_dim == 16);
  REQUIRE(spec.q_rows() == 64);
  REQUIRE(spec.kv_rows() == 32);
  REQUIRE(spec.qkv_rows() == 128);
  REQUIRE(spec.rms_norm_eps == 1e-5f);
  REQUIRE(spec.rope_theta == 100000.0);
  REQUIRE(!spec.tie_word_embeddings);
  REQUIRE(!spec.qkv_bias);
  REQUIRE(spec.eos_token_ids == std::vector<int32_t>{2});
  REQUIRE(spec.bos_token_id == 1);
  REQUIRE(spec.pad_token_id == -1);
}

TEST_CASE("The generation config's end tokens win over the config's", "[model_spec]") {
  REQUIRE(Parse(LlamaConfig(), R"({"eos_token_id": [7, 9]})").value().eos_token_ids ==
          std::vector<int32_t>{7, 9});
  REQUIRE(Parse(LlamaConfig(), R"({"max_length": 5})").value().eos_token_ids ==
          std::vector<int32_t>{2});
  REQUIRE(!Parse(LlamaConfig(), "not json").ok());
}

TEST_CASE("Both spellings of rope settings are read", "[model_spec]") {
  const PlainJson scaling = {{"rope_type", "llama3"},
                             {"factor", 8.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 8192}};
  PlainJson old_style = LlamaConfig();
  old_style["rope_scaling"] = scaling;
  PlainJson new_style = LlamaConfig();
  new_style.erase("rope_theta");
  new_style["rope_parameters"] = scaling;
  new_style["rope_parameters"]["rope_theta"] = 100000.0;
  for (const PlainJson& config : {old_style, new_style}) {
    const ModelSpec spec = Parse(config).value();
    REQUIRE(spec.rope_theta == 100000.0);
    REQUIRE(spec.rope.type == RopeScaling::Type::kLlama3);
    REQUIRE(spec.rope.factor == 8.0);
    REQUIRE(spec.rope.original_max_position == 8192);
  }
  PlainJson both = new_style;
  both["rope_scaling"] = scaling;
  both["rope_theta"] = 100000.0;
  REQUIRE(Parse(both).value().rope.factor == 8.0);
  both["rope_theta"] = 10000.0;
  REQUIRE(ParseRefusal(both, absl::StatusCode::kInvalidArgument).find("rope_theta is 10000 and") !=
          std::string::npos);
  both["rope_theta"] = 100000.0;
  both["rope_scaling"]["factor"] = 4.0;
  REQUIRE(ParseRefusal(both, absl::StatusCode::kInvalidArgument)
              .find("rope_parameters and rope_scaling say different things") != std::string::npos);
  old_style["rope_scaling"].erase("original_max_position_embeddings");
  REQUIRE(ParseRefusal(old_style, absl::StatusCode::kInvalidArgument) ==
          "config.json: rope_scaling: key original_max_position_embeddings is missing");
}

TEST_CASE("Unsupported models and features are refused by name", "[model_spec]") {
  using Catch::Matchers::Contains;
  REQUIRE_THAT(Unsupported("model_type", "mixtral"),
               Contains("model_type mixtral") && Contains("llama, qwen2 or qwen3"));
  REQUIRE_THAT(Unsupported("hidden_act", "gelu"), Contains("hidden_act gelu"));
  REQUIRE_THAT(Unsupported("attention_bias", true), Contains("attention_bias"));
  REQUIRE_THAT(Unsupported("mlp_bias", true), Contains("mlp_bias"));
  REQUIRE_THAT(Unsupported("quantization_config", {{"bits", 4}}), Contains("quantization_config"));
  REQUIRE_THAT(Unsupported("partial_rotary_factor", 0.5), Contains("partial_rotary_factor"));
  REQUIRE_THAT(Unsupported("rope_scaling", {{"type", "yarn"}, {"factor", 4}}),
               Contains("rope type yarn"));
  REQUIRE_THAT(Unsupported("rope_scaling", {{"rope_type", "linear"}, {"factor", 4}}),
               Contains("rope type linear"));
}

TEST_CASE("A sliding window is refused only where it is in use", "[model_spec]") {
  PlainJson qwen = LlamaConfig();
  qwen["model_type"] = "qwen2";
  qwen["sliding_window"] = 4096;
  qwen["max_window_layers"] = 1;
  REQUIRE(Parse(qwen).ok());
  qwen["use_sliding_window"] = true;
  REQUIRE(ParseRefusal(qwen, absl::StatusCode::kUnimplemented).find("sliding-window") !=
          std::string::npos);
  qwen["max_window_layers"] = 2;
  REQUIRE(Parse(qwen).ok());
  qwen["layer_types"] = {"full_attention", "sliding_attention"};
  REQUIRE(!Parse(qwen).ok());
}

TEST_CASE("Qwen configs carry their biases, norms and head size", "[model_spec]") {
  PlainJson config = LlamaConfig();
  config["model_type"] = "qwen2";
  REQUIRE(Parse(config).value().qkv_bias);
  config["model_type"] = "qwen3";
  REQUIRE(Parse(config).value().head_dim == 128);
  config["head_dim"] = 32;
  const ModelSpec spec = Parse(config).value();
  REQUIRE(spec.qk_norm);
  REQUIRE(!spec.qkv_bias);
  REQUIRE(spec.q_rows() == 128);
  REQUIRE(spec.hidden_size == 64);
}

TEST_CASE("Malformed values are refused with their key", "[model_spec]") {
  const auto invalid = [](const std::string& key, const PlainJson& value) {
    PlainJson config = LlamaConfig();
    if (value.is_discarded()) {
      config.erase(key);
    } else {
      config[key] = value;
    }
    const std::string message = ParseRefusal(config, absl::StatusCode::kInvalidArgument);
    REQUIRE(message.find(key) != std::string::npos);
  };
  const PlainJson absent(PlainJson::value_t::discarded);
  invalid("model_type", absent);
  invalid("hidden_size", absent);
  invalid("vocab_size", -5);
  invalid("vocab_size", "many");
  invalid("num_hidden_layers", 1.5);
  invalid("num_key_value_heads", 3);
  invalid("num_attention_heads", 0);
  invalid("hidden_size", 66);
  invalid("head_dim", 7);
  invalid("rms_norm_eps", 0);
  invalid("rms_norm_eps", 1e-59);  // nothing in float32
  invalid("rms_norm_eps", 1e39);
  invalid("tie_word_embeddings", "yes");
  invalid("eos_token_id", "two");
  REQUIRE(!ParseModelSpec("{\"model_type\": ", "", "x").ok());
}

TEST_CASE("A size that no model has is refused with its key and its bound", "[model_spec]") {
  const std::pair<const char*, const char*> bounds[] = {{"num_hidden_layers", "512"},
                                                        {"hidden_size", "131072"},
                                                        {"vocab_size", "16777216"},
                                                        {"intermediate_size", "524288"},
                                                        {"num_attention_heads", "512"},
                                                        {"num_key_value_heads", "512"},
                                                        {"max_position_embeddings", "2147483648"},
                                                        {"head_dim", "512"}};
  for (const auto& [key, bound] : bounds) {
    PlainJson config = LlamaConfig();
    config[key] = 1'000'000'000'000;
    const std::string message = ParseRefusal(config, absl::StatusCode::kInvalidArgument);
    INFO(message);
    REQUIRE(message.find(key) != std::string::npos);
    REQUIRE(message.find(bound) != std::string::npos);
  }
  // A size that follows from others.
  PlainJson wide = LlamaConfig();
  wide["hidden_size"] = 4096;
  REQUIRE(
      ParseRefusal(wide, absl::StatusCode::kInvalidArgument).find("a head of 1024; at most 512") !=
      std::string::npos);
}

TEST_CASE("A folder without config.json is not found", "[model_spec]") {
  const testing::TempDir dir;
  const absl::Status status = LoadModelSpec(dir.path().string()).status();
  REQUIRE(status.code() == absl::StatusCode::kNotFound);
  REQUIRE(std::string(status.message()).find("config.json") != std::string::npos);
}

}  // namespace tandem
