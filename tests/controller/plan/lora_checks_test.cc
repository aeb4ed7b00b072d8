// model.lora against the files that it names, and the keys in the messages.
#include "controller/plan/lora_checks.h"

#include <filesystem>

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "common/formats/peft/peft_adapter.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct Adapter {
  testing::TempDir dir;
  const std::string base = dir.path() / "model";
  const std::string folder = dir.path() / "adapter";
  std::vector<std::string> keys = {"model.path=" + base, "model.lora.rank=4", "model.lora.alpha=8",
                                   "model.lora.target_modules=[q_proj]",
                                   "model.lora.adapter_path=" + folder};

  // Of rank 4, alpha 16, on q_proj and v_proj.
  explicit Adapter(const std::string& base_name = "org/model") {
    REQUIRE(testing::WriteTinyModel(base).ok());
    fs::create_directories(folder);
    const LoraSpec spec =
        *MakeLoraSpec(Model(), {.rank = 4, .alpha = 16, .target_modules = {"q_proj", "v_proj"}});
    const auto writer = PeftAdapterWriter::Create(folder, spec, base_name).value();
    for (size_t target = 0; target < spec.targets.size(); ++target) {
      for (const LoraMatrix matrix : {LoraMatrix::kA, LoraMatrix::kB}) {
        const auto shape = LoraTensorShape(spec.targets[target], matrix, spec.rank);
        const std::vector<float> zeros(static_cast<size_t>(NumElements(shape)));
        REQUIRE(writer->WriteRows(target, matrix, 0, shape[0], zeros.data()).ok());
      }
    }
    REQUIRE(writer->Finish().ok());
  }
  ModelSpec Model() const { return LoadModelSpec(base).value(); }
  v1::Config With(const std::vector<std::string>& more) const {
    std::vector<std::string> all = keys;
    all.insert(all.end(), more.begin(), more.end());
    const auto loaded = LoadConfig("", all);
    INFO(loaded.status().ToString());
    REQUIRE(loaded.ok());
    return loaded->config;
  }
  std::string Refusal(const std::vector<std::string>& more) const {
    return std::string(CheckLoraInputs(With(more), Model()).message());
  }
};

TEST_CASE("an adapter that is others than model.lora says which key to set to what",
          "[lora][run_inputs]") {
  const Adapter adapter;
  REQUIRE(adapter.Refusal({}).ends_with("has alpha 16: set model.lora.alpha=16"));
  REQUIRE(adapter.Refusal({"model.lora.alpha=16", "model.lora.rank=2"})
              .ends_with("has rank 4: set model.lora.rank=4"));
  REQUIRE(adapter.Refusal({"model.lora.alpha=16"})
              .ends_with("set model.lora.target_modules=[q_proj, v_proj]"));
  REQUIRE(adapter.Refusal({"model.lora.alpha=16", "model.lora.target_modules=[q_proj,v_proj]"}) ==
          "");
}

TEST_CASE("targets that the model lacks are refused with their key", "[lora][run_inputs]") {
  const Adapter adapter;
  REQUIRE(adapter.Refusal({"model.lora.target_modules=[c_attn]"})
              .starts_with("model.lora.target_modules: c_attn matches no module of the model"));
  REQUIRE(adapter.Refusal({"model.lora.exclude_modules=[vision]"})
              .starts_with("model.lora.exclude_modules: vision matches no module of the model"));
}

TEST_CASE("an adapter path without an adapter names its key and the remedy", "[lora][run_inputs]") {
  const Adapter adapter;
  REQUIRE(adapter.Refusal({"model.lora.adapter_path=/nope"}) ==
          "model.lora.adapter_path=/nope: there is no adapter_config.json: give a folder that PEFT "
          "or a checkpoint's lora_adapter has written, or leave the key out to begin with new "
          "adapters");
  fs::remove(adapter.folder + "/adapter_model.safetensors");
  const std::string weights = adapter.Refusal({});
  INFO(weights);
  REQUIRE(weights.find("model.lora.adapter_path") != std::string::npos);
  REQUIRE(weights.find("adapter_model.safetensors") != std::string::npos);
}

TEST_CASE("an adapter of another base is warned of", "[lora][run_inputs]") {
  REQUIRE(LoraWarning(Adapter().With({})) == "");
  const Adapter other("someone/another");
  REQUIRE(LoraWarning(other.With({})) == "model.lora.adapter_path: " + other.folder +
                                             " names someone/another as its base, and this is " +
                                             other.base + ": only names and shapes are compared");
  REQUIRE(LoraWarning(other.With({"model.lora.adapter_path=/nope"})) == "");
}

}  // namespace
}  // namespace tandem
