#include "common/formats/peft/merge_checkpoint.h"

#include <filesystem>
#include <optional>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "common/formats/hf_checkpoint.h"
#include "common/formats/peft/peft_adapter.h"
#include "tests/common/formats/peft/adapter_files.h"
#include "tests/common/lora/small_model.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing::AdapterFiles;
using testing::FileTensors;
using testing::Json;
using testing::SmallModel;
using Rounding = MergeCheckpointOptions::Rounding;
using Output = MergeCheckpointOptions::Output;

// A base, an adapter on q_proj and down_proj, and a place for what is merged.
struct Folder {
  testing::TempDir dir;
  std::string base = dir.path() / "base", adapter = dir.path() / "adapter",
              out = dir.path() / "out";
  ModelSpec model = SmallModel(true);
  LoraSpec spec =
      *MakeLoraSpec(model, {.rank = 3, .alpha = 6, .target_modules = {"q_proj", "down_proj"}});
  FileTensors tensors;
  AdapterFiles files;

  explicit Folder(DType base_dtype = DType::kBFloat16, DType adapter_dtype = DType::kFloat32)
      : files(spec, adapter_dtype) {
    fs::create_directories(base);
    fs::create_directories(adapter);
    uint64_t seed = 0;
    for (const TensorSpec& tensor : HfTensors(model)) {
      tensors[tensor.name] = testing::RandomTensor(tensor.shape, ++seed, base_dtype);
    }
    testing::WriteText(base + "/config.json", ModelConfigJson(model));
    Write();
  }

  void Write() const {
    testing::WriteTensors(base + "/model.safetensors", tensors);
    files.Write(adapter);
  }

  absl::StatusOr<MergedCheckpoint> Merge(MergeCheckpointOptions options = {}) const {
    return MergeCheckpoint(base, adapter, out, options);
  }

  // What the library's MergeRows makes of one weight; as fp32.
  std::vector<float> Want(const LoraTarget& target,
                          DType dtype,
                          Rounding rounding,
                          MergeRule rule) const {
    std::vector<float> w = tensors.at(target.weight).values;
    if (rounding == Rounding::kPeft) w = Rounded(w, dtype);
    std::vector<float> merged(w.size());
    MergeRows({.base = w.data(),
               .base_dtype = DType::kFloat32,
               .b = files.tensors.at(LoraTensorName(target, LoraMatrix::kB)).values.data(),
               .a = files.tensors.at(LoraTensorName(target, LoraMatrix::kA)).values.data(),
               .scaling = 2,
               .rows = target.out,
               .in = target.in,
               .rank = 3,
               .out = merged.data(),
               .out_dtype = DType::kFloat32,
               .rule = rule});
    return Rounded(merged, dtype);
  }

  static std::vector<float> Rounded(std::vector<float> values, DType dtype) {
    if (dtype == DType::kFloat32) return values;
    for (float& value : values) value = FromBf16(ToBf16(value));
    return values;
  }

  // Every tensor of `out` is as the rule makes it, of that dtype.
  void RequireMerged(DType dtype, Rounding rounding, MergeRule rule) const {
    const ModelSpec read = LoadModelSpec(out).value();
    const auto checkpoint = HfCheckpoint::Open(out, read).value();
    REQUIRE(checkpoint->tensors().size() == tensors.size());
    for (const auto& [name, tensor] : tensors) {
      INFO(name);
      REQUIRE(checkpoint->View(name)->dtype == dtype);
      std::vector<float> got(tensor.values.size());
      REQUIRE(checkpoint->ReadRows(name, 0, tensor.shape[0], DType::kFloat32, got.data()).ok());
      const LoraTarget* target = spec.Find(name);
      REQUIRE(got == (target == nullptr ? Rounded(tensor.values, dtype)
                                        : Want(*target, dtype, rounding, rule)));
    }
  }
};

TEST_CASE("a merged checkpoint has the weights of MergeRows, by every rule and dtype") {
  for (DType base : {DType::kFloat32, DType::kBFloat16}) {
    for (DType adapter : {DType::kFloat32, DType::kBFloat16}) {
      for (Rounding rounding : {Rounding::kServed, Rounding::kPeft}) {
        for (Output output : {Output::kBFloat16, Output::kFloat32, Output::kBase}) {
          const Folder folder(base, adapter);
          const auto merged = folder.Merge({rounding, output});
          INFO(merged.status());
          REQUIRE(merged.ok());
          REQUIRE(merged->tensors == static_cast<int64_t>(folder.tensors.size()));
          REQUIRE(merged->merged == 4);
          const DType dtype = output == Output::kBase      ? base
                              : output == Output::kFloat32 ? DType::kFloat32
                                                           : DType::kBFloat16;
          REQUIRE(merged->bytes ==
                  folder.model.parameters() * static_cast<int64_t>(DTypeBytes(dtype)));
          folder.RequireMerged(dtype, rounding,
                               rounding == Rounding::kPeft && adapter == DType::kBFloat16
                                   ? MergeRule::kBf16Product
                                   : MergeRule::kServed);
        }
      }
    }
  }
}

TEST_CASE("the base's config, generation config and tokenizer go along") {
  const Folder folder;
  Json config = Json::parse(ReadWholeFile(folder.base + "/config.json").value());
  config["something_of_its_own"] = 7;
  testing::WriteText(folder.base + "/config.json", config.dump());
  testing::WriteText(folder.base + "/generation_config.json", R"({"temperature": 0.5})");
  testing::WriteText(folder.base + "/tokenizer.json", "{}");
  testing::WriteText(folder.base + "/merges.txt", "a b");
  REQUIRE(folder.Merge({.output = Output::kFloat32}).ok());
  const Json written = Json::parse(ReadWholeFile(folder.out + "/config.json").value());
  REQUIRE(written.at("something_of_its_own") == 7);
  REQUIRE(written.at("torch_dtype") == "float32");
  REQUIRE(written.at("dtype") == "float32");
  REQUIRE(ReadWholeFile(folder.out + "/generation_config.json").value() ==
          R"({"temperature": 0.5})");
  REQUIRE(ReadWholeFile(folder.out + "/tokenizer.json").value() == "{}");
  REQUIRE(ReadWholeFile(folder.out + "/merges.txt").value() == "a b");
}

TEST_CASE("without a tokenizer or a dtype in its config a base is merged all the same") {
  const Folder folder;
  Json config = Json::parse(ReadWholeFile(folder.base + "/config.json").value());
  config.erase("dtype");
  config.erase("torch_dtype");
  testing::WriteText(folder.base + "/config.json", config.dump());
  REQUIRE(folder.Merge().ok());
  REQUIRE(Json::parse(ReadWholeFile(folder.out + "/config.json").value()).at("torch_dtype") ==
          "bfloat16");
  REQUIRE_FALSE(fs::exists(folder.out + "/tokenizer.json"));
}

TEST_CASE("nothing is written over, the base least of all, and a failure leaves nothing") {
  const Folder folder;
  REQUIRE(MergeCheckpoint(folder.base, folder.adapter, folder.base, {}).status().code() ==
          absl::StatusCode::kAlreadyExists);
  REQUIRE(folder.Merge().ok());
  REQUIRE(folder.Merge().status().code() == absl::StatusCode::kAlreadyExists);
  folder.RequireMerged(DType::kBFloat16, Rounding::kServed, MergeRule::kServed);

  Folder broken;
  for (auto& [name, tensor] : broken.tensors) {
    if (name.ends_with("1.mlp.down_proj.weight")) tensor.values[12] = 3.4e38f;
  }
  const std::string b = "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight";
  broken.files.tensors[b].values.assign(8 * 3, 3e38f);
  broken.Write();
  const absl::Status status = broken.Merge().status();
  REQUIRE(status.code() == absl::StatusCode::kDataLoss);
  REQUIRE(std::string(status.message()).find("model.layers.1.mlp.down_proj.weight is ") !=
          std::string::npos);
  for (const auto& entry : fs::directory_iterator(broken.dir.path())) {
    const std::string name = entry.path().filename();
    REQUIRE((name == "base" || name == "adapter"));
  }
}

TEST_CASE("an adapter that is refused, and a base that is none, leave nothing either") {
  Folder folder;
  folder.files.config.erase("lora_alpha");
  folder.Write();
  REQUIRE(folder.Merge().status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_FALSE(fs::exists(folder.out));
  REQUIRE(MergeCheckpoint(folder.adapter, folder.adapter, folder.out, {}).status().code() ==
          absl::StatusCode::kNotFound);
}

// What an adapter's owner would do with a trained one: export it, then merge it elsewhere.
TEST_CASE("an exported adapter merges into the weights that its matrices give") {
  const Folder folder;
  const std::string exported = folder.dir.path() / "exported";
  fs::create_directories(exported);
  const auto writer = PeftAdapterWriter::Create(exported, folder.spec, folder.base).value();
  for (size_t i = 0; i < folder.spec.targets.size(); ++i) {
    for (LoraMatrix matrix : {LoraMatrix::kA, LoraMatrix::kB}) {
      const auto& tensor = folder.files.tensors.at(LoraTensorName(folder.spec.targets[i], matrix));
      REQUIRE(writer->WriteRows(i, matrix, 0, tensor.shape[0], tensor.values.data()).ok());
    }
  }
  REQUIRE(writer->Finish().ok());
  REQUIRE(MergeCheckpoint(folder.base, exported, folder.out, {}).ok());
  folder.RequireMerged(DType::kBFloat16, Rounding::kServed, MergeRule::kServed);
}

}  // namespace
}  // namespace tandem
