#include <catch2/catch.hpp>

#include "common/config/check.h"
#include "common/config/loaded_config.h"

namespace tandem {
namespace {

LoadedConfig LoadedLora(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(),
                   {"model.path=/m", "data.train_files=[/t.jsonl]", "cluster.run_dir=/r"});
  const auto loaded = LoadConfig("", overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return *loaded;
}

std::string LoraProblem(const std::vector<std::string>& overrides) {
  LoadedConfig loaded = LoadedLora(overrides);
  return std::string(CheckConfigValues(loaded).message());
}

}  // namespace

TEST_CASE("verl's scattered spellings of LoRA's keys are its section's") {
  const v1::Lora lora =
      LoadedLora({"actor_rollout_ref.model.lora_rank=8", "model.lora_alpha=32",
                  "model.target_modules=[q_proj,v_proj]", "model.exclude_modules=[k_proj]"})
          .config.model()
          .lora();
  REQUIRE(lora.rank() == 8);
  REQUIRE(lora.alpha() == 32);
  REQUIRE(lora.target_modules_size() == 2);
  REQUIRE(lora.exclude_modules(0) == "k_proj");
  REQUIRE(lora.merge());
}

TEST_CASE("two spellings of one LoRA key with different values are an error that names both") {
  const auto loaded = LoadConfig("", {"model.path=/m", "data.train_files=[/t.jsonl]",
                                      "model.lora_rank=8", "model.lora.rank=16"});
  const std::string text = loaded.status().ToString();
  INFO(text);
  REQUIRE(!loaded.ok());
  REQUIRE(text.find("model.lora_rank") != std::string::npos);
  REQUIRE(text.find("model.lora.rank") != std::string::npos);
}

TEST_CASE("what needs adapters is refused without them") {
  const std::string only = LoraProblem({"actor.checkpoint.save_lora_only=true"});
  INFO(only);
  REQUIRE(only.find("model.lora.rank=0") != std::string::npos);
  const std::string path = LoraProblem({"model.lora.adapter_path=/a"});
  INFO(path);
  REQUIRE(path.find("model.lora.adapter_path names adapters") != std::string::npos);
}

TEST_CASE("what adapters do not go together with is refused by name") {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"model.lora.dropout=0.1", "set dropout to 0"},
      {"actor.fsdp_config.param_offload=true", "only the adapters have some"},
  };
  REQUIRE(LoraProblem({"model.lora.rank=8"}).empty());
  for (const auto& [key, text] : refused) {
    const std::string problem = LoraProblem({"model.lora.rank=8", key});
    INFO(key << ": " << problem);
    REQUIRE(problem.find(text) != std::string::npos);
    REQUIRE(problem.find(key.substr(0, key.find('='))) != std::string::npos);
  }
}

TEST_CASE("a GPU takes adapters, merged or beside the base") {
  for (const char* const merge : {"true", "false"}) {
    REQUIRE(LoraProblem({"model.lora.rank=8", "trainer.device=cuda",
                         std::string("model.lora.merge=") + merge})
                .empty());
  }
}

TEST_CASE("dropout is refused with merge, on a GPU and outside of [0, 1)") {
  const std::string merged = LoraProblem({"model.lora.rank=8", "model.lora.dropout=0.1"});
  INFO(merged);
  REQUIRE(merged.find("they have no input of their own") != std::string::npos);
  REQUIRE(merged.find("or model.lora.merge=false") != std::string::npos);
  const std::vector<std::string> beside = {"model.lora.rank=8", "model.lora.merge=false"};
  const auto problem = [&](std::vector<std::string> keys) {
    keys.insert(keys.begin(), beside.begin(), beside.end());
    return LoraProblem(keys);
  };
  for (const char* share : {"0", "0.1", "0.999"}) {
    REQUIRE(problem({std::string("model.lora.dropout=") + share}).empty());
  }
  const std::string cuda = problem({"model.lora.dropout=0.1", "trainer.device=cuda"});
  INFO(cuda);
  REQUIRE(cuda.find("model.lora.dropout is built for CPUs only so far") != std::string::npos);
  REQUIRE(cuda.find("trainer.device=cpu") != std::string::npos);
  const std::string all = problem({"model.lora.dropout=1"});
  INFO(all);
  REQUIRE(all.find("model.lora.dropout=1 drops every input") != std::string::npos);
  for (const char* share : {"-0.1", "1.5", "nan"}) {
    const auto loaded = LoadConfig("", {"model.path=/m", "data.train_files=[/t.jsonl]",
                                        std::string("model.lora.dropout=") + share});
    INFO(loaded.status().ToString());
    REQUIRE_FALSE(loaded.ok());
    REQUIRE(loaded.status().message().find("model.lora.dropout") != std::string::npos);
  }
}

TEST_CASE("dropout is among the options of adapters") {
  const LoadedConfig loaded =
      LoadedLora({"model.lora.rank=8", "model.lora.merge=false", "model.lora.dropout=0.25"});
  REQUIRE(LoraOptionsOf(loaded.config).dropout == 0.25);
}

}  // namespace tandem
