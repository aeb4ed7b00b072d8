#include "controller/cli/lora_command.h"

#include <cmath>
#include <filesystem>
#include <sstream>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/formats/hf_checkpoint.h"
#include "tests/common/formats/peft/adapter_files.h"
#include "tests/common/lora/small_model.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing::AdapterFiles;

struct LoraCommandFolder {
  testing::TempDir dir;
  LoraMergeOptions options{
      .base = dir.path() / "base", .adapter = dir.path() / "adapter", .out = dir.path() / "out"};

  LoraCommandFolder() {
    const ModelSpec model = testing::SmallModel(true);
    fs::create_directories(options.base);
    fs::create_directories(options.adapter);
    testing::FileTensors tensors;
    for (const TensorSpec& tensor : HfTensors(model)) {
      tensors[tensor.name] = testing::RandomTensor(tensor.shape, 1, DType::kBFloat16);
    }
    testing::WriteTensors(options.base + "/model.safetensors", tensors);
    testing::WriteText(options.base + "/config.json", ModelConfigJson(model));
    AdapterFiles(*MakeLoraSpec(model, {.rank = 3, .alpha = 4.5, .target_modules = {"q_proj"}}),
                 DType::kBFloat16)
        .Write(options.adapter);
  }

  // The words printed, or the error.
  std::string Merge(const std::string& dtype, const std::string& rule) {
    options.dtype = dtype;
    options.rule = rule;
    std::ostringstream out;
    const absl::Status status = LoraMergeCommand(options, out);
    return status.ok() ? out.str() : std::string(status.message());
  }

  std::vector<float> Merged() const {
    const auto checkpoint =
        HfCheckpoint::Open(options.out, LoadModelSpec(options.out).value()).value();
    std::vector<float> values(8 * 8);
    REQUIRE(checkpoint
                ->ReadRows("model.layers.0.self_attn.q_proj.weight", 0, 8, DType::kFloat32,
                           values.data())
                .ok());
    return values;
  }
};

TEST_CASE("lora merge writes a checkpoint by dtype and rule, and says what", "[ctl][lora]") {
  LoraCommandFolder folder;
  const int64_t elements = testing::SmallModel(true).parameters();
  REQUIRE(folder.Merge("float32", "served") ==
          fmt::format("{}: 20 tensors, 2 of them merged, {} bytes\n", folder.options.out,
                      4 * elements));
  const std::vector<float> served = folder.Merged();
  fs::remove_all(folder.options.out);
  REQUIRE(folder.Merge("float32", "peft").starts_with(folder.options.out));
  REQUIRE(folder.Merged() != served);  // the product of a bf16 adapter is rounded
  fs::remove_all(folder.options.out);
  REQUIRE(folder.Merge("base", "served").ends_with(fmt::format(" {} bytes\n", 2 * elements)));
  std::vector<float> rounded = served;
  for (float& value : rounded) value = FromBf16(ToBf16(value));
  REQUIRE(folder.Merged() == rounded);
}

TEST_CASE("lora merge refuses unknown words, a place that is taken and a bad adapter",
          "[ctl][lora]") {
  LoraCommandFolder folder;
  REQUIRE(folder.Merge("float16", "served") ==
          "unknown dtype float16 (known: bfloat16, float32, base)");
  REQUIRE(folder.Merge("base", "best") == "unknown rule best (known: served, peft)");
  REQUIRE_FALSE(fs::exists(folder.options.out));
  REQUIRE(folder.Merge("bfloat16", "served").ends_with(" bytes\n"));
  REQUIRE(folder.Merge("bfloat16", "served").find(folder.options.out) != std::string::npos);
  REQUIRE_FALSE(folder.Merge("bfloat16", "served").ends_with(" bytes\n"));
  fs::remove(folder.options.adapter + "/adapter_config.json");
  REQUIRE(folder.Merge("bfloat16", "served").find("adapter_config.json") != std::string::npos);
}

TEST_CASE("lora inspect prints what an adapter is", "[ctl][lora]") {
  const LoraCommandFolder folder;
  std::ostringstream out;
  REQUIRE(LoraInspectCommand({.adapter = folder.options.adapter}, out).ok());
  REQUIRE(out.str() ==
          "rank               3\n"
          "alpha              4.5\n"
          "scaling            1.5\n"
          "target_modules     q_proj\n"
          "base               some/base\n"
          "tensors            4 of BF16, 192 bytes\n");
  REQUIRE_FALSE(LoraInspectCommand({.adapter = folder.options.base}, out).ok());
}

TEST_CASE("lora inspect refuses another rank and numbers that are none, without a base, too",
          "[ctl][lora]") {
  const LoraCommandFolder folder;
  const LoraSpec spec = *MakeLoraSpec(testing::SmallModel(true),
                                      {.rank = 3, .alpha = 4.5, .target_modules = {"q_proj"}});
  std::ostringstream out;
  AdapterFiles rank(spec);
  rank.config["r"] = 4;
  rank.Write(folder.options.adapter);
  absl::Status status = LoraInspectCommand({.adapter = folder.options.adapter}, out);
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(status.message().find("has rank 3, adapter_config.json says r 4") != std::string::npos);
  AdapterFiles diverged(spec);
  diverged.tensors.begin()->second.values[5] = NAN;
  diverged.Write(folder.options.adapter);
  for (const bool json : {false, true}) {
    status = LoraInspectCommand({.adapter = folder.options.adapter, .json = json}, out);
    REQUIRE(status.code() == absl::StatusCode::kDataLoss);
    REQUIRE(status.message().find("the training that wrote it had diverged") != std::string::npos);
  }
  REQUIRE(out.str().empty());
}

TEST_CASE("lora inspect compares an adapter with a base, and writes JSON", "[ctl][lora]") {
  const LoraCommandFolder folder;
  LoraInspectOptions options{.adapter = folder.options.adapter, .base = folder.options.base};
  std::ostringstream out;
  REQUIRE(LoraInspectCommand(options, out).ok());
  REQUIRE(out.str().ends_with("fits               " + options.base + ", on 2 modules\n"));
  options.json = true;
  std::ostringstream json;
  REQUIRE(LoraInspectCommand(options, json).ok());
  const auto parsed = nlohmann::json::parse(json.str());
  REQUIRE(parsed.at("rank") == 3);
  REQUIRE(parsed.at("alpha") == 4.5);
  REQUIRE(parsed.at("bytes") == 192);
  REQUIRE(parsed.at("fits").at("modules") == 2);
  REQUIRE(parsed.at("fits").at("warning") == "");
  // Another width: what fits in name does not in shape.
  ModelSpec wider = testing::SmallModel(true);
  wider.hidden_size *= 2;
  testing::WriteText(options.base + "/config.json", ModelConfigJson(wider));
  const absl::Status status = LoraInspectCommand(options, json);
  INFO(status.ToString());
  REQUIRE(status.message().find("give the adapter with the base") != std::string::npos);
}

TEST_CASE("lora merge says that the adapter names another base", "[ctl][lora]") {
  LoraCommandFolder folder;
  const std::string moved = (folder.dir.path() / "other").string();
  fs::rename(folder.options.base, moved);
  folder.options.base = moved;
  const std::string said = folder.Merge("bfloat16", "served");
  INFO(said);
  REQUIRE(said.starts_with("warning: " + folder.options.adapter + " names some/base as its base"));
  REQUIRE(said.find("this is " + moved) != std::string::npos);
  REQUIRE(said.ends_with(" bytes\n"));
}

}  // namespace
}  // namespace tandem
