// Which files of a directory a weight check under LoRA reads, and their names.
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/formats/peft/peft_adapter.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

void Touch(const std::filesystem::path& file) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << "{}";
}

TEST_CASE(
    "a checkpoint's model is what merged weights are compared with, its adapter what others "
    "are") {
  testing::TempDir dir;
  const std::string path = dir.path().string(), adapter = path + "/lora_adapter";
  Touch(adapter + "/adapter_config.json");
  // Without a model the adapter is all there is.
  REQUIRE(FindLoraCheckFiles(path, true)->adapter == adapter);
  Touch(path + "/model.safetensors");
  REQUIRE(FindLoraCheckFiles(path, true)->model == path);
  REQUIRE(FindLoraCheckFiles(path, true)->adapter.empty());
  REQUIRE(FindLoraCheckFiles(path, false)->adapter == adapter);
  REQUIRE(FindLoraCheckFiles(path, false)->model.empty());
  for (const bool merged : {true, false}) {
    REQUIRE(FindLoraCheckFiles(adapter, merged)->adapter == adapter);
    REQUIRE(FindLoraCheckFiles(adapter, merged)->model.empty());
  }
}

TEST_CASE("a model whose weights are gone is taken for a model, and its adapter not in its place") {
  testing::TempDir dir;
  const std::string path = dir.path().string();
  Touch(path + "/lora_adapter/adapter_config.json");
  Touch(path + "/config.json");
  REQUIRE(FindLoraCheckFiles(path, true)->model == path);
}

TEST_CASE("what is compared with is named") {
  REQUIRE(LoraCheckText({.model = "/m"}, "/base") == "/m");
  REQUIRE(LoraCheckText({.adapter = "/a"}, "/base") == "/base with the adapter of /a");
}

}  // namespace
}  // namespace tandem
