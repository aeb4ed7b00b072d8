#include "common/formats/peft/peft_adapter.h"

#include <cmath>
#include <filesystem>

#include <catch2/catch.hpp>

#include "tests/common/formats/peft/adapter_files.h"
#include "tests/common/lora/small_model.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using testing::AdapterFiles;
using testing::FileTensor;
using testing::SmallModel;

constexpr char kQ[] = "base_model.model.model.layers.0.self_attn.q_proj.";

LoraSpec AdapterSpec() {
  return *MakeLoraSpec(SmallModel(true),
                       {.rank = 3, .alpha = 6, .target_modules = {"q_proj", "down_proj"}});
}

absl::Status Opened(const AdapterFiles& files, const ModelSpec& model = SmallModel(true)) {
  const testing::TempDir dir;
  files.Write(dir.path());
  return PeftAdapter::Open(dir.path(), model).status();
}

// The same without the model.
absl::Status Checked(const AdapterFiles& files) {
  const testing::TempDir dir;
  files.Write(dir.path());
  const auto config = ParsePeftConfig(files.config.dump(), kAdapterConfigFile);
  REQUIRE(config.ok());
  return CheckPeftTensors(
      *SafetensorsFile::Open((dir.path() / kAdapterWeightsFile).string()).value(), *config);
}

// The message without the folder.
std::string AdapterRefusal(const AdapterFiles& files,
                           absl::StatusCode code = absl::StatusCode::kInvalidArgument,
                           const ModelSpec& model = SmallModel(true)) {
  const absl::Status status = Opened(files, model);
  REQUIRE(status.code() == code);
  const std::string message(status.message());
  return message.substr(message.find("adapter_"));
}

void Rename(AdapterFiles& files, const std::string& from, const std::string& to) {
  auto node = files.tensors.extract(from);
  node.key() = to;
  files.tensors.insert(std::move(node));
}

std::vector<float> Read(const PeftAdapter& adapter, size_t target, LoraMatrix matrix) {
  const auto shape = LoraTensorShape(adapter.spec().targets[target], matrix, adapter.spec().rank);
  std::vector<float> values(static_cast<size_t>(NumElements(shape)));
  REQUIRE(adapter.ReadRows(target, matrix, 0, shape[0], values.data()).ok());
  return values;
}

TEST_CASE("an adapter is read as it is stored, whatever the spelling of its tensors") {
  const LoraSpec spec = AdapterSpec();
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    AdapterFiles files(spec, dtype);
    const auto tensors = files.tensors;
    Rename(files, std::string(kQ) + "lora_A.weight", std::string(kQ) + "lora_A.default.weight");
    Rename(files, std::string(kQ) + "lora_B.weight",
           "model.layers.0.self_attn.q_proj.base_layer.lora_B.weight");
    const testing::TempDir dir;
    files.Write(dir.path());
    const auto adapter = PeftAdapter::Open(dir.path(), SmallModel(true));
    INFO(adapter.status());
    REQUIRE(adapter.ok());
    REQUIRE(SameLora(spec, "a", (*adapter)->spec(), "b").ok());
    REQUIRE((*adapter)->dtype() == dtype);
    REQUIRE((*adapter)->config().base_model == "some/base");
    for (size_t i = 0; i < spec.targets.size(); ++i) {
      for (LoraMatrix matrix : {LoraMatrix::kA, LoraMatrix::kB}) {
        REQUIRE(Read(**adapter, i, matrix) ==
                tensors.at(LoraTensorName(spec.targets[i], matrix)).values);
      }
    }
    std::vector<float> rows(2 * 3);
    REQUIRE((*adapter)->ReadRows(0, LoraMatrix::kB, 5, 2, rows.data()).ok());
    const auto& b = tensors.at(std::string(kQ) + "lora_B.weight").values;
    REQUIRE(rows == std::vector<float>(b.begin() + 15, b.begin() + 21));
    REQUIRE_FALSE((*adapter)->ReadRows(0, LoraMatrix::kB, 7, 2, rows.data()).ok());
    REQUIRE_FALSE((*adapter)->ReadRows(0, LoraMatrix::kA, -1, 1, rows.data()).ok());
  }
}

TEST_CASE("a written adapter has PEFT's keys and fp32 tensors, and reads back bit for bit") {
  const LoraSpec spec = AdapterSpec();
  const AdapterFiles files(spec);
  const testing::TempDir dir;
  {
    const auto writer = PeftAdapterWriter::Create(dir.path(), spec, "some/base").value();
    for (size_t i = 0; i < spec.targets.size(); ++i) {
      const auto& a = files.tensors.at(LoraTensorName(spec.targets[i], LoraMatrix::kA)).values;
      const auto& b = files.tensors.at(LoraTensorName(spec.targets[i], LoraMatrix::kB)).values;
      // As ranks would: B by rows, the last first.
      const int64_t out = spec.targets[i].out;
      REQUIRE(writer->WriteRows(i, LoraMatrix::kB, 5, out - 5, b.data() + 5 * 3).ok());
      REQUIRE(writer->WriteRows(i, LoraMatrix::kB, 0, 5, b.data()).ok());
      REQUIRE(writer->WriteRows(i, LoraMatrix::kA, 0, 3, a.data()).ok());
    }
    REQUIRE_FALSE(std::filesystem::exists(dir.path() / kAdapterConfigFile));
    REQUIRE(writer->Finish().ok());
  }
  const auto file = SafetensorsFile::Open((dir.path() / kAdapterWeightsFile).string()).value();
  REQUIRE(file->metadata().at("format") == "pt");
  REQUIRE(file->tensors().size() == files.tensors.size());
  auto want = files.tensors.begin();
  for (const SafetensorsTensor& tensor : file->tensors()) {
    REQUIRE(tensor.name == want->first);  // sorted by name
    REQUIRE(tensor.dtype == DType::kFloat32);
    REQUIRE(tensor.shape == want->second.shape);
    ++want;
  }
  const auto adapter = PeftAdapter::Open(dir.path(), SmallModel(true)).value();
  REQUIRE(SameLora(spec, "a", adapter->spec(), "b").ok());
  for (size_t i = 0; i < spec.targets.size(); ++i) {
    REQUIRE(Read(*adapter, i, LoraMatrix::kB) ==
            files.tensors.at(LoraTensorName(spec.targets[i], LoraMatrix::kB)).values);
  }
}

TEST_CASE("an adapter that is not complete is not finished, and one given up leaves nothing") {
  const testing::TempDir dir;
  {
    const auto writer = PeftAdapterWriter::Create(dir.path(), AdapterSpec(), "b").value();
    REQUIRE(writer->Finish().code() == absl::StatusCode::kFailedPrecondition);
  }
  REQUIRE(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("a rank that contradicts the shapes is refused with both") {
  AdapterFiles files(AdapterSpec());
  files.config["r"] = 4;
  REQUIRE(AdapterRefusal(files) ==
          "adapter_model.safetensors: tensor base_model.model.model.layers.0.mlp.down_proj."
          "lora_A.weight [3, 12] has rank 3, adapter_config.json says r 4: correct r there");
  AdapterFiles one(AdapterSpec());
  one.tensors[std::string(kQ) + "lora_B.weight"] = testing::RandomTensor({8, 2}, 1);
  REQUIRE(AdapterRefusal(one) ==
          "adapter_model.safetensors: tensor base_model.model.model.layers.0.self_attn.q_proj."
          "lora_B.weight [8, 2] has rank 2, adapter_config.json says r 3: correct r there");
}

TEST_CASE("the adapter of another base is refused") {
  ModelSpec narrow = SmallModel(true);
  narrow.hidden_size = 6;
  REQUIRE(AdapterRefusal(AdapterFiles(AdapterSpec()), absl::StatusCode::kInvalidArgument, narrow) ==
          "adapter_model.safetensors: tensor base_model.model.model.layers.0.mlp.down_proj."
          "lora_B.weight has shape [8, 3], the model and r need [6, 3]: give the adapter with the "
          "base that it was trained on");
  ModelSpec shallow = SmallModel(true);
  shallow.num_layers = 1;
  REQUIRE(
      AdapterRefusal(AdapterFiles(AdapterSpec()), absl::StatusCode::kInvalidArgument, shallow) ==
      "adapter_model.safetensors: tensor base_model.model.model.layers.1.mlp.down_proj."
      "lora_A.weight is of a module that this llama model does not have: give the adapter with "
      "the base that it was trained on");
  ModelSpec deep = SmallModel(true);
  deep.num_layers = 3;
  REQUIRE(AdapterRefusal(AdapterFiles(AdapterSpec()), absl::StatusCode::kInvalidArgument, deep) ==
          "adapter_model.safetensors has no lora_A of model.layers.2.self_attn.q_proj, which "
          "adapter_config.json targets: save the adapter again, or give it with the base that it "
          "was trained on");
}

TEST_CASE("missing, extra and double tensors are refused by name") {
  AdapterFiles missing(AdapterSpec());
  missing.tensors.erase(std::string(kQ) + "lora_B.weight");
  REQUIRE(AdapterRefusal(missing) ==
          "adapter_model.safetensors has no lora_B of model.layers.0.self_attn.q_proj, which "
          "adapter_config.json targets: save the adapter again, or give it with the base that it "
          "was trained on");
  AdapterFiles untargeted(AdapterSpec());
  untargeted.config["target_modules"] = {"q_proj"};
  REQUIRE(AdapterRefusal(untargeted) ==
          "adapter_model.safetensors: tensor base_model.model.model.layers.0.mlp.down_proj."
          "lora_A.weight is of a module that adapter_config.json does not target: correct "
          "target_modules there, or take the tensor out");
  for (const char* name : {"base_model.model.lm_head.weight",
                           "base_model.model.model.layers.0.mlp.up_proj.lora_embedding_A",
                           "base_model.model.model.layers.0.mlp.up_proj.lora_A.other.weight",
                           "base_model.model.model.layers.0.mlp.up_proj.lora_B.bias"}) {
    AdapterFiles extra(AdapterSpec());
    extra.tensors[name] = testing::RandomTensor({2, 2}, 1);
    REQUIRE(AdapterRefusal(extra) ==
            "adapter_model.safetensors: tensor " + std::string(name) +
                " is not a lora_A or lora_B of the adapter \"default\": save the "
                "adapter alone, with PEFT's save_pretrained");
  }
  AdapterFiles twice(AdapterSpec());
  twice.tensors[std::string(kQ) + "lora_A.default.weight"] = testing::RandomTensor({3, 8}, 1);
  REQUIRE(
      AdapterRefusal(twice) ==
      "adapter_model.safetensors: tensors base_model.model.model.layers.0.self_attn.q_proj."
      "lora_A.default.weight and base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight "
      "are the same matrix: take one out");
}

TEST_CASE("values that are not finite numbers are refused by element") {
  for (float bad : {NAN, INFINITY}) {
    AdapterFiles files(AdapterSpec());
    files.tensors[std::string(kQ) + "lora_B.weight"].values[3 * 4 + 1] = bad;
    const std::string message = AdapterRefusal(files, absl::StatusCode::kDataLoss);
    REQUIRE(message.starts_with(
        "adapter_model.safetensors: element [4, 1] of base_model.model.model.layers.0.self_attn."
        "q_proj.lora_B.weight is "));
  }
}

TEST_CASE("without a base tensors are held against the config, each other and finite numbers") {
  REQUIRE(Checked(AdapterFiles(AdapterSpec())).ok());
  REQUIRE(Checked(AdapterFiles(AdapterSpec(), DType::kBFloat16)).ok());
  const auto refused = [](const AdapterFiles& files, absl::StatusCode code) {
    const absl::Status status = Checked(files);
    REQUIRE(status.code() == code);
    const std::string message(status.message());
    return message.substr(message.find("adapter_"));
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  // What reading beside a base says of the same.
  AdapterFiles rank(AdapterSpec());
  rank.config["r"] = 4;
  REQUIRE(refused(rank, invalid) == AdapterRefusal(rank));
  for (const char* matrix : {"lora_A.weight", "lora_B.weight"}) {
    AdapterFiles one(AdapterSpec());
    auto& tensor = one.tensors.at(std::string(kQ) + matrix);
    tensor = testing::RandomTensor({tensor.shape[0] == 3 ? 2 : 8, tensor.shape[0] == 3 ? 8 : 2}, 1);
    REQUIRE(refused(one, invalid) == AdapterRefusal(one));
    REQUIRE(refused(one, invalid).find("has rank 2, adapter_config.json says r 3") !=
            std::string::npos);
    for (float bad : {NAN, -INFINITY}) {
      AdapterFiles diverged(AdapterSpec());
      diverged.tensors.at(std::string(kQ) + matrix).values.back() = bad;
      REQUIRE(refused(diverged, absl::StatusCode::kDataLoss) ==
              AdapterRefusal(diverged, absl::StatusCode::kDataLoss));
    }
  }
  AdapterFiles extra(AdapterSpec());
  extra.tensors["base_model.model.lm_head.weight"] = testing::RandomTensor({2, 2}, 1);
  REQUIRE(refused(extra, invalid) == AdapterRefusal(extra));
  AdapterFiles twice(AdapterSpec());
  twice.tensors[std::string(kQ) + "lora_A.default.weight"] = testing::RandomTensor({3, 8}, 1);
  REQUIRE(refused(twice, invalid) == AdapterRefusal(twice));
  // What it says by itself.
  AdapterFiles missing(AdapterSpec());
  missing.tensors.erase(std::string(kQ) + "lora_B.weight");
  REQUIRE(refused(missing, invalid) ==
          "adapter_model.safetensors has no lora_B of model.layers.0.self_attn.q_proj, and the "
          "other one of it: save the adapter again");
  AdapterFiles flat(AdapterSpec());
  flat.tensors[std::string(kQ) + "lora_A.weight"] = testing::RandomTensor({3}, 1);
  REQUIRE(refused(flat, invalid).find("lora_A.weight has shape [3], adapters have matrices") !=
          std::string::npos);
}

TEST_CASE("errors of the config name its file, and files that are not there theirs") {
  AdapterFiles files(AdapterSpec());
  files.config["target_modules"] = {"fc1"};
  REQUIRE(AdapterRefusal(files) ==
          "adapter_config.json: target_modules [fc1] without exclude_modules [] leaves no module "
          "of the model: name some of down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, "
          "v_proj");
  const testing::TempDir dir;
  REQUIRE(PeftAdapter::Open(dir.path(), SmallModel(true)).status().code() ==
          absl::StatusCode::kNotFound);
  AdapterFiles(AdapterSpec()).Write(dir.path());
  std::filesystem::remove(dir.path() / kAdapterWeightsFile);
  REQUIRE(PeftAdapter::Open(dir.path(), SmallModel(true)).status().code() ==
          absl::StatusCode::kNotFound);
}

TEST_CASE("names of adapters lose their wrapping, and other names are none of theirs") {
  const std::string layer = "model.layers.0.mlp.up_proj";
  REQUIRE_FALSE(ParsePeftTensorName("base_model.model." + layer + ".weight"));
  REQUIRE(ParsePeftTensorName("base_model.model." + layer + ".lora_B.default.weight")->module ==
          layer);
}

}  // namespace
}  // namespace tandem
