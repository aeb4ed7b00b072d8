#include "common/formats/peft/peft_config.h"

#include <catch2/catch.hpp>

#include "tests/common/formats/peft/adapter_files.h"
#include "tests/common/lora/small_model.h"

namespace tandem {
namespace {

using testing::Json;

LoraSpec PeftSpec(double alpha = 16) {
  return *MakeLoraSpec(testing::SmallModel(true),
                       {.rank = 8, .alpha = alpha, .target_modules = {"q_proj", "1.mlp.up_proj"}});
}

Json Written() { return Json::parse(PeftConfigJson(PeftSpec(), "models/base")); }

absl::Status PeftConfigRefusal(const std::string& key, const Json& value) {
  Json config = Written();
  config[key] = value;
  return ParsePeftConfig(config.dump(), "a.json").status();
}

TEST_CASE("a written config is PEFT's and reads back as the same adapter") {
  const Json config = Written();
  REQUIRE(config.at("peft_type") == "LORA");
  REQUIRE(config.at("task_type") == "CAUSAL_LM");
  REQUIRE(config.at("bias") == "none");
  REQUIRE(config.at("r") == 8);
  REQUIRE(config.at("lora_alpha").is_number_integer());
  REQUIRE(config.at("lora_alpha") == 16);
  REQUIRE(config.at("base_model_name_or_path") == "models/base");
  const auto read = ParsePeftConfig(config.dump(), "a.json");
  REQUIRE(read.ok());
  REQUIRE(read->lora.rank == 8);
  REQUIRE(read->lora.alpha == 16);
  REQUIRE(read->lora.target_modules ==
          std::vector<std::string>{"model.layers.1.mlp.up_proj", "q_proj"});
  REQUIRE(read->base_model == "models/base");
  REQUIRE(read->dropout == 0);
  const auto half = ParsePeftConfig(PeftConfigJson(PeftSpec(0.5), "b", 0.05), "a.json");
  REQUIRE(half->lora.alpha == 0.5);
  REQUIRE(half->dropout == 0.05);
}

TEST_CASE("a config with nothing but what is needed is read, and one regex for all modules") {
  const auto read = ParsePeftConfig(
      R"({"peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": ".*_proj",
          "exclude_modules": ["v_proj"], "target_parameters": ["q_proj.weight"]})",
      "a.json");
  REQUIRE(read.ok());
  REQUIRE(read->lora.target_modules == std::vector<std::string>{".*_proj"});
  REQUIRE(read->lora.exclude_modules == std::vector<std::string>{"v_proj"});
  REQUIRE(read->lora.target_parameters == std::vector<std::string>{"q_proj.weight"});
}

TEST_CASE("an alpha is never assumed") {
  Json config = Written();
  config.erase("lora_alpha");
  const std::string remedy =
      ", expected a number above 0, and none is assumed: take it from the run that trained the "
      "adapter";
  REQUIRE(ParsePeftConfig(config.dump(), "a.json").status() ==
          absl::InvalidArgumentError("a.json: lora_alpha is missing" + remedy));
  REQUIRE(PeftConfigRefusal("lora_alpha", nullptr) ==
          absl::InvalidArgumentError("a.json: lora_alpha is null" + remedy));
  REQUIRE(PeftConfigRefusal("lora_alpha", 0) ==
          absl::InvalidArgumentError("a.json: lora_alpha is 0" + remedy));
  REQUIRE(PeftConfigRefusal("lora_alpha", "16") ==
          absl::InvalidArgumentError("a.json: lora_alpha is \"16\"" + remedy));
}

TEST_CASE("what is not supported is refused by key, with a remedy") {
  const std::vector<std::pair<std::string, Json>> unsupported = {
      {"use_dora", true},
      {"use_rslora", true},
      {"modules_to_save", {"lm_head"}},
      {"bias", "all"},
      {"bias", "lora_only"},
      {"lora_bias", true},
      {"fan_in_fan_out", true},
      {"rank_pattern", {{"q_proj", 4}}},
      {"alpha_pattern", {{"q_proj", 4}}},
      {"layers_to_transform", {0, 1}},
      {"layers_to_transform", Json::array({0})},
      {"layer_replication", {{0, 1}}},
      {"trainable_token_indices", {1, 2}},
      {"init_lora_weights", "pissa_niter_16"},
      {"init_lora_weights", "olora"},
      {"use_qalora", true},
      {"alora_invocation_tokens", {1}},
  };
  for (const auto& [key, value] : unsupported) {
    const absl::Status status = PeftConfigRefusal(key, value);
    INFO(key << " " << status);
    REQUIRE(status.code() == absl::StatusCode::kUnimplemented);
    REQUIRE(std::string(status.message()).starts_with("a.json: " + key + " is "));
    REQUIRE(std::string(status.message()).find(": ", 8) != std::string::npos);
  }
  REQUIRE(PeftConfigRefusal("use_rslora", true).message() ==
          "a.json: use_rslora is true, which is not supported (rsLoRA scales by alpha / sqrt(r), "
          "not alpha / r): set lora_alpha to lora_alpha * sqrt(r) and use_rslora to false, which "
          "is the same adapter");
}

TEST_CASE("what only changes how training began is accepted") {
  for (const Json& value : {Json(true), Json(false), Json(nullptr), Json("gaussian"),
                            Json("orthogonal"), Json("eva")}) {
    REQUIRE(PeftConfigRefusal("init_lora_weights", value).ok());
  }
  REQUIRE(PeftConfigRefusal("task_type", nullptr).ok());
  REQUIRE(PeftConfigRefusal("a_key_of_tomorrow", 1).ok());
}

TEST_CASE("values of the wrong kind are refused by key") {
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{
           {"peft_type", "LOHA"},
           {"peft_type", nullptr},
           {"task_type", "SEQ_CLS"},
           {"r", 0},
           {"r", 2.5},
           {"r", "8"},
           {"lora_dropout", 1.5},
           {"lora_dropout", "none"},
           {"target_modules", {{"q_proj", 1}}},
           {"target_modules", {1, 2}},
           {"exclude_modules", 3},
       }) {
    const absl::Status status = PeftConfigRefusal(key, value);
    INFO(key << " " << status);
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(std::string(status.message()).starts_with("a.json: " + key + " is "));
  }
  REQUIRE(ParsePeftConfig("[]", "a.json").status().message() ==
          "a.json is not a JSON object: give the file that PEFT wrote");
}

}  // namespace
}  // namespace tandem
