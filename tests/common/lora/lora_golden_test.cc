// Adapters of PEFT, their names, and the weights and logits of models they are merged into.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "common/formats/hf_checkpoint.h"
#include "common/formats/peft/merge_checkpoint.h"
#include "common/formats/peft/peft_adapter.h"
#include "common/process/threads.h"
#include "common/weights/layout.h"
#include "tests/support/golden.h"
#include "tests/support/golden_tensor.h"
#include "tests/support/temp_dir.h"
#include "tests/support/whole_forward.h"

namespace tandem {
namespace {

using testing::CompareValues;
using testing::GoldenCase;
using testing::GoldenDir;
using testing::GoldenFamily;
using testing::GoldenTensor;
using testing::Json;
using testing::ParseTensor;
using Names = std::vector<std::string>;

// null, one text or a list.
Names NamesOf(const Json& options, const char* key) {
  if (!options.contains(key) || options.at(key).is_null()) return {};
  if (options.at(key).is_string()) return {options.at(key).get<std::string>()};
  return options.at(key).get<Names>();
}

Names Sorted(Names names) {
  std::sort(names.begin(), names.end());
  return names;
}

struct Setup {
  std::string base, adapter;
  ModelSpec model;
  LoraOptions options;
  DType dtype = DType::kFloat32;  // that the base is cast to

  Setup(const GoldenFamily& family, const GoldenCase& c)
      : base(family.dir / c.options.at("base").get<std::string>()),
        adapter(family.dir / c.options.at("dir").get<std::string>()),
        model(LoadModelSpec(base).value()) {
    options.rank = c.options.at("r").get<int64_t>();
    options.alpha = c.options.at("lora_alpha").get<double>();
    options.target_modules = NamesOf(c.options, "target_modules");
    options.exclude_modules = NamesOf(c.options, "exclude_modules");
    options.target_parameters = NamesOf(c.options, "target_parameters");
    if (c.options.at("base_dtype") == "bfloat16") dtype = DType::kBFloat16;
  }

  absl::Status Merge(const std::string& out) const {
    const auto output = dtype == DType::kFloat32 ? MergeCheckpointOptions::Output::kFloat32
                                                 : MergeCheckpointOptions::Output::kBFloat16;
    return MergeCheckpoint(base, adapter, out, {MergeCheckpointOptions::Rounding::kPeft, output})
        .status();
  }
};

std::vector<float> ReadTensor(const HfCheckpoint& checkpoint,
                              const std::string& name,
                              DType through = DType::kFloat32) {
  const int64_t count = checkpoint.View(name)->elements();
  const int64_t rows = checkpoint.View(name)->shape[0];
  std::vector<float> values(static_cast<size_t>(count));
  if (through == DType::kFloat32) {
    REQUIRE(checkpoint.ReadRows(name, 0, rows, through, values.data()).ok());
    return values;
  }
  std::vector<Bf16> halves(values.size());
  REQUIRE(checkpoint.ReadRows(name, 0, rows, through, halves.data()).ok());
  std::transform(halves.begin(), halves.end(), values.begin(), FromBf16);
  return values;
}

void CheckNames(const GoldenCase& c, const LoraSpec& spec) {
  size_t others = 0;  // than the adapters' names
  for (const auto& key : c.outputs.at("peft_state_keys").get<Names>()) {
    others += ParsePeftTensorName(key).has_value() ? 0 : 1;
  }
  REQUIRE(others == c.outputs.at("normalized_keys").get<Names>().size());
  Names exported, changed;
  for (const LoraTarget& target : spec.targets) {
    exported.push_back(LoraTensorName(target, LoraMatrix::kA));
    exported.push_back(LoraTensorName(target, LoraMatrix::kB));
    changed.push_back(target.weight);
  }
  REQUIRE(Sorted(exported) == Sorted(c.outputs.at("exported_adapter_keys").get<Names>()));
  REQUIRE(Sorted(changed) == Sorted(c.outputs.at("changed_keys").get<Names>()));
}

// What is read is written again with the keys of PEFT and the same values.
void CheckExport(const GoldenCase& c, const ModelSpec& model, const PeftAdapter& adapter) {
  const testing::TempDir dir;
  const LoraSpec& spec = adapter.spec();
  const auto writer = PeftAdapterWriter::Create(dir.path(), spec, "base").value();
  for (size_t i = 0; i < spec.targets.size(); ++i) {
    for (LoraMatrix matrix : {LoraMatrix::kA, LoraMatrix::kB}) {
      const auto shape = LoraTensorShape(spec.targets[i], matrix, spec.rank);
      std::vector<float> values(static_cast<size_t>(NumElements(shape)));
      REQUIRE(adapter.ReadRows(i, matrix, 0, shape[0], values.data()).ok());
      REQUIRE(writer->WriteRows(i, matrix, 0, shape[0], values.data()).ok());
    }
  }
  REQUIRE(writer->Finish().ok());
  const auto file = SafetensorsFile::Open((dir.path() / kAdapterWeightsFile).string()).value();
  Names keys;
  for (const SafetensorsTensor& tensor : file->tensors()) keys.push_back(tensor.name);
  REQUIRE(keys == Sorted(c.outputs.at("exported_adapter_keys").get<Names>()));
  const auto again = PeftAdapter::Open(dir.path(), model).value();
  REQUIRE(SameLora(spec, "read", again->spec(), "written").ok());
  for (const std::string& key : keys) {
    REQUIRE(file->Find(key)->dtype == DType::kFloat32);
  }
}

void CheckWeights(const GoldenCase& c, const Setup& setup, const HfCheckpoint& merged) {
  const auto base = HfCheckpoint::Open(setup.base, setup.model).value();
  const std::string path = setup.adapter + "/merged_changed.safetensors";
  const auto want = SafetensorsFile::Open(path).value();
  std::set<std::string> changed;
  for (const TensorSpec& tensor : merged.tensors()) {
    INFO(tensor.name);
    const std::vector<float> got = ReadTensor(merged, tensor.name);
    const std::vector<float> before = ReadTensor(*base, tensor.name, setup.dtype);
    if (got != before) changed.insert(tensor.name);
    if (want->Find(tensor.name) == nullptr) {
      REQUIRE(got == before);
      continue;
    }
    const TensorView view = want->View(tensor.name).value();
    REQUIRE(view.dtype == setup.dtype);
    std::vector<double> expected;
    for (size_t i = 0; i < got.size(); ++i) {
      expected.push_back(setup.dtype == DType::kFloat32 ? view.as<float>()[i]
                                                        : FromBf16(view.as<Bf16>()[i]));
    }
    const double tolerance = setup.dtype == DType::kFloat32 ? 1e-6 : 0;
    REQUIRE(CompareValues(got, expected, tolerance, tolerance) == "");
  }
  const auto names = c.outputs.at("changed_keys").get<std::set<std::string>>();
  REQUIRE(changed == names);
}

// The scaled product alone, rounded as the rule does.
std::vector<float> Product(const PeftAdapter& adapter, size_t index) {
  const LoraTarget& target = adapter.spec().targets[index];
  const int64_t rank = adapter.spec().rank;
  std::vector<float> a(static_cast<size_t>(rank * target.in)),
      b(static_cast<size_t>(target.out * rank));
  std::vector<float> product(static_cast<size_t>(target.out * target.in));
  REQUIRE(adapter.ReadRows(index, LoraMatrix::kA, 0, rank, a.data()).ok());
  REQUIRE(adapter.ReadRows(index, LoraMatrix::kB, 0, target.out, b.data()).ok());
  MergeRows(
      {.base = product.data(),
       .base_dtype = DType::kFloat32,
       .b = b.data(),
       .a = a.data(),
       .scaling = adapter.spec().scaling(),
       .rows = target.out,
       .in = target.in,
       .rank = rank,
       .out = product.data(),
       .out_dtype = DType::kFloat32,
       .rule = adapter.dtype() == DType::kBFloat16 ? MergeRule::kBf16Product : MergeRule::kServed});
  return product;
}

// How many weights an un-merge by subtraction, which nothing here does, would fail to restore: the
// reason why the base is kept. fp32 sums of other orders count a little differently.
void CheckUnmerge(const GoldenCase& c,
                  const Setup& setup,
                  const PeftAdapter& adapter,
                  const HfCheckpoint& merged) {
  const auto base = HfCheckpoint::Open(setup.base, setup.model).value();
  const auto rounded = [&](float value) {
    return setup.dtype == DType::kFloat32 ? value : FromBf16(ToBf16(value));
  };
  for (size_t t = 0; t < adapter.spec().targets.size(); ++t) {
    const std::string& name = adapter.spec().targets[t].weight;
    INFO(name);
    const std::vector<float> product = Product(adapter, t);
    const std::vector<float> sum = ReadTensor(merged, name);
    const std::vector<float> before = ReadTensor(*base, name, setup.dtype);
    int64_t lost = 0;
    for (size_t i = 0; i < sum.size(); ++i) {
      lost += rounded(sum[i] - rounded(product[i])) != before[i];
    }
    const auto want =
        c.outputs.at("elements_not_restored_by_arithmetic_unmerge").at(name).get<int64_t>();
    const bool exact = setup.dtype == DType::kBFloat16;
    REQUIRE(testing::IsClose(static_cast<double>(lost), static_cast<double>(want), exact ? 0 : 0.05,
                             exact ? 0 : 5));
  }
}

using ReadDense = std::function<absl::Status(const TensorPlace& place, void* dense)>;

std::vector<float> Logits(const ModelSpec& spec,
                          DType compute,
                          const std::vector<int32_t>& tokens,
                          int64_t rows,
                          const ReadDense& read) {
  const auto ops = CreateCpuForwardOps(compute, std::make_shared<ThreadPool>(1)).value();
  const WeightLayout layout = WeightLayout::Build(spec, compute);
  const auto region = HostDevice()->Reserve("weights", layout.total_bytes(), nullptr).value();
  REQUIRE(region->Map().ok());
  for (const TensorPlace& place : layout.places()) {
    std::vector<std::byte> dense(static_cast<size_t>(NumElements(place.shape)) *
                                 DTypeBytes(compute));
    const absl::Status status = read(place, dense.data());
    INFO(status.ToString());
    REQUIRE(status.ok());
    layout.WriteRows(region->data() + layout.group_offset(place.layer), place, 0, place.rows(),
                     dense.data());
  }
  const testing::HeldModel held = {
      .spec = spec, .storage = region->data(), .vocab_limit = spec.vocab_size};
  return testing::LogitsWhole(HostDevice(), *ops, held, tokens, rows).value();
}

void CheckMergedLogits(const GoldenCase& c, const Setup& setup, const HfCheckpoint& merged) {
  const std::vector<int64_t> ids = ParseTensor(c.inputs.at("input_ids")).Ints();
  const std::vector<int32_t> tokens(ids.begin(), ids.end());
  const auto check = [&](const char* key, DType compute) {
    if (c.outputs.at(key).is_null()) return;
    INFO(key);
    const GoldenTensor want = ParseTensor(c.outputs.at(key));
    const std::vector<float> got = Logits(
        setup.model, compute, tokens, want.shape.at(0), [&](const TensorPlace& place, void* dense) {
          return merged.ReadRows(place.name, 0, place.rows(), compute, dense);
        });
    const bool exact = compute == DType::kFloat32;
    REQUIRE(CompareValues(got, want.values, exact ? 1e-3 : 0, exact ? 2e-3 : 0.5) == "");
  };
  check("logits_last_two_merged_fp32", DType::kFloat32);
  check("logits_last_two_merged_native_dtype", setup.dtype);
}

// What a run with merge=false computes: base and adapter stay separate.
void CheckUnmergedLogits(const GoldenCase& c, const Setup& setup, const PeftAdapter& adapter) {
  const char* const key = "logits_last_two_unmerged_adapter_forward";
  if (c.outputs.at(key).is_null()) return;
  const GoldenTensor want = ParseTensor(c.outputs.at(key));
  const std::vector<int64_t> ids = ParseTensor(c.inputs.at("input_ids")).Ints();
  const std::vector<int32_t> tokens(ids.begin(), ids.end());
  LoraOptions options = setup.options;
  options.merge = false;
  const ModelSpec spec = WithAdapters(setup.model, options).value();
  const auto base = HfCheckpoint::Open(setup.base, setup.model).value();
  const auto logits = [&](bool with_b) {
    return Logits(
        spec, setup.dtype, tokens, want.shape.at(0),
        [&](const TensorPlace& place, void* dense) -> absl::Status {
          for (size_t i = 0; i < adapter.spec().targets.size(); ++i) {
            const std::string& module = adapter.spec().targets[i].module;
            const bool is_a = place.name == module + ".lora_A.weight";
            if (!is_a && place.name != module + ".lora_B.weight") continue;
            std::vector<float> values(static_cast<size_t>(NumElements(place.shape)));
            if (is_a || with_b) {
              TANDEM_RETURN_IF_ERROR(adapter.ReadRows(i, is_a ? LoraMatrix::kA : LoraMatrix::kB, 0,
                                                      place.rows(), values.data()));
            }
            if (setup.dtype == DType::kFloat32) {
              std::copy(values.begin(), values.end(), static_cast<float*>(dense));
            } else {
              std::transform(values.begin(), values.end(), static_cast<Bf16*>(dense), ToBf16);
            }
            return absl::OkStatus();
          }
          return base->ReadRows(place.name, 0, place.rows(), setup.dtype, dense);
        });
  };
  if (setup.dtype != DType::kFloat32) {
    REQUIRE(CompareValues(logits(true), want.values, 0, 0.5) == "");
    return;
  }
  // PEFT rounds what an adapter of bf16 makes of a base of fp32; a run's adapters have the dtype
  // that it computes in.
  const double atol = adapter.dtype() == DType::kFloat32 ? 2e-3 : 1e-2;
  REQUIRE(CompareValues(logits(true), want.values, 1e-3, atol) == "");
  // The tolerance tells an adapter that acts from one that does not.
  REQUIRE(CompareValues(logits(false), want.values, 1e-3, atol) != "");
}

void CheckMerge(const GoldenFamily& family, const GoldenCase& c) {
  const Setup setup(family, c);
  const testing::TempDir dir;
  const std::string out = dir.path() / "merged";
  const auto spec = MakeLoraSpec(setup.model, setup.options);
  if (c.raises.has_value()) {
    REQUIRE_FALSE((spec.ok() && setup.Merge(out).ok()));
    return;
  }
  INFO(spec.status());
  REQUIRE(spec.ok());
  REQUIRE(spec->scaling() == testing::ParseNumber(c.options.at("scaling")));
  CheckNames(c, *spec);
  const auto adapter = PeftAdapter::Open(setup.adapter, setup.model);
  INFO(adapter.status());
  REQUIRE(adapter.ok());
  REQUIRE(SameLora(*spec, "options", (*adapter)->spec(), setup.adapter).ok());
  CheckExport(c, setup.model, **adapter);
  REQUIRE(setup.Merge(out).ok());
  const auto merged = HfCheckpoint::Open(out, LoadModelSpec(out).value()).value();
  CheckWeights(c, setup, *merged);
  CheckUnmerge(c, setup, **adapter, *merged);
  CheckMergedLogits(c, setup, *merged);
  CheckUnmergedLogits(c, setup, **adapter);
}

TEST_CASE("adapters merge into the golden weights and logits, under the golden names",
          "[golden][lora]") {
  testing::RunGoldenFamily(testing::ReadGoldenFamily(GoldenDir(), "lora"),
                           {{"lora_merge", CheckMerge}});
}

}  // namespace
}  // namespace tandem
