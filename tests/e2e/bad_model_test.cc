// Model directories that cannot work: refused with the name of the file and what to do.
#include <filesystem>
#include <fstream>
#include <functional>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

// The message of the process that refused; requires a failure (with `expected`, unless it is 0) and
// that nobody is left.
std::string RefusedModel(ClusterRig& rig, int expected = 0) {
  const int code = rig.Launch({"--grace", "5"}).Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(code > 0);
  if (expected != 0) REQUIRE(code == expected);
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(said.find("step 1/3") == std::string::npos);
  return said;
}

void EditJson(const std::string& path, const std::function<void(json&)>& edit) {
  json value = json::parse(FileText(path));
  edit(value);
  std::ofstream(path) << value.dump();
}

TEST_CASE("a model type that is not known is named before anything is launched") {
  ClusterRig rig;
  EditJson(rig.model_dir() + "/config.json", [](json& config) { config["model_type"] = "mamba"; });
  RequireSaid(RefusedModel(rig, 65), {"mamba", "llama"});
  REQUIRE(rig.Log("trainer") == "");
  REQUIRE(rig.Log("rollout") == "");
}

TEST_CASE("a missing weight file is named") {
  ClusterRig rig;
  std::filesystem::remove(rig.model_dir() + "/model.safetensors");
  RequireSaid(RefusedModel(rig, 66),
              {rig.model_dir() + " has neither model.safetensors nor model.safetensors.index.json",
               "give a Hugging Face model directory"});
}

TEST_CASE("weight files that are empty or no weights are damaged inputs") {
  ClusterRig rig;
  for (const std::string& bytes : {std::string(), std::string(1000, 'x')}) {
    std::ofstream(rig.model_dir() + "/model.safetensors") << bytes;
    RequireSaid(RefusedModel(rig, 65), {rig.model_dir() + "/model.safetensors"});
  }
  std::filesystem::remove(rig.model_dir() + "/config.json");
  RequireSaid(RefusedModel(rig, 66), {"model.path", "has no config.json"});
  REQUIRE(rig.Log("controller") == "");
}

TEST_CASE("a tokenizer of a larger model is refused") {
  ClusterRig rig({.model = {.vocab_size = 256}});
  RequireSaid(RefusedModel(rig, 65),
              {"the tokenizer has ", "but the model only 256 embedding rows"});
}

TEST_CASE("a truncated weight file is told from a whole one") {
  ClusterRig rig;
  const std::string path = rig.model_dir() + "/model.safetensors";
  const auto half = std::filesystem::file_size(path) / 2;
  std::filesystem::resize_file(path, half);
  RequireSaid(RefusedModel(rig, 65), {path + ": tensor model.", " needs bytes [",
                                      fmt::format("but the file has only {} bytes", half),
                                      "fetch or write the file again"});
}

TEST_CASE("a model that computes NaN stops in the first step") {
  ClusterRig rig;
  std::fstream file(rig.model_dir() + "/model.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-4, std::ios::end);
  file.write("\xff\xff\xff\xff", 4);
  file.close();
  RequireSaid(RefusedModel(rig, 70), {"is nan, not finite: sample 0x", ", position ",
                                      "weight version 0", "check the files in model.path"});
  REQUIRE_FALSE(rig.HasRunFile("checkpoints/step_1"));
}

TEST_CASE("weights of another shape are named") {
  ClusterRig rig;
  EditJson(rig.model_dir() + "/config.json",
           [](json& config) { config["intermediate_size"] = 128; });
  RequireSaid(RefusedModel(rig, 65),
              {"model.safetensors: tensor model.layers.0.mlp.gate_proj.weight",
               "has shape [96, 64], config.json needs [128, 64]"});
}

TEST_CASE("a tokenizer without merges is refused") {
  ClusterRig rig;
  EditJson(rig.model_dir() + "/tokenizer.json",
           [](json& tokenizer) { tokenizer["model"].erase("merges"); });
  RequireSaid(RefusedModel(rig, 65), {"tokenizer.json", "merges"});
}

TEST_CASE("a chat template that does not parse is told with its file") {
  ClusterRig rig;
  EditJson(rig.model_dir() + "/tokenizer_config.json",
           [](json& config) { config["chat_template"] = "{% for %}"; });
  RequireSaid(RefusedModel(rig, 65),
              {rig.model_dir() + "/tokenizer_config.json: chat template does not parse"});
  std::ofstream(rig.model_dir() + "/chat_template.jinja") << "{{ oops";
  RequireSaid(RefusedModel(rig, 65),
              {rig.model_dir() + "/chat_template.jinja: chat template does not"});
}

TEST_CASE("a model without a tokenizer is refused") {
  ClusterRig rig;
  std::filesystem::remove(rig.model_dir() + "/tokenizer.json");
  RequireSaid(RefusedModel(rig, 66), {"tokenizer.json"});
}

TEST_CASE("a pool too small for one sequence is refused with the numbers") {
  ClusterRig rig({.config = {{"rollout.gpu_memory_utilization", "0.0000001"}}});
  RequireSaid(RefusedModel(rig),
              {"the KV pool cannot hold one sequence of rollout.max_model_len=", "it needs ",
               " of weights only 0 fit in rollout.gpu_memory_utilization=1e-07 of ",
               "raise that key, lower rollout.max_model_len, or run fewer pairs"});
}

}  // namespace
}  // namespace tandem::testing
