// Adapters and bases on disk, whole or broken on purpose.
#pragma once

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/base/philox.h"
#include "common/formats/peft/peft_config.h"
#include "common/formats/safetensors.h"

namespace tandem::testing {

using Json = nlohmann::ordered_json;

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

struct FileTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
  DType dtype = DType::kFloat32;  // F32 or BF16
};
using FileTensors = std::map<std::string, FileTensor>;

inline FileTensor RandomTensor(std::vector<int64_t> shape,
                               uint64_t seed,
                               DType dtype = DType::kFloat32) {
  FileTensor tensor{std::move(shape), {}, dtype};
  for (int64_t i = 0; i < NumElements(tensor.shape); ++i) {
    const float value = RandomUniform(seed, 9, static_cast<uint64_t>(i)) - 0.5f;
    tensor.values.push_back(dtype == DType::kFloat32 ? value : FromBf16(ToBf16(value)));
  }
  return tensor;
}

inline void WriteTensors(const std::string& path, const FileTensors& tensors) {
  std::vector<TensorDeclaration> declarations;
  for (const auto& [name, tensor] : tensors)
    declarations.push_back({name, tensor.dtype, tensor.shape});
  auto writer = SafetensorsWriter::Create(path, declarations, {{"format", "pt"}}).value();
  for (const auto& [name, tensor] : tensors) {
    std::vector<Bf16> halves;
    for (float value : tensor.values) halves.push_back(ToBf16(value));
    const void* data = tensor.dtype == DType::kFloat32
                           ? static_cast<const void*>(tensor.values.data())
                           : static_cast<const void*>(halves.data());
    REQUIRE(writer->Write(name, data, tensor.values.size() * DTypeBytes(tensor.dtype)).ok());
  }
  REQUIRE(writer->Finish().ok());
}

// What PEFT would write of an adapter with random A and B.
struct AdapterFiles {
  Json config;
  FileTensors tensors;

  explicit AdapterFiles(const LoraSpec& spec, DType dtype = DType::kFloat32)
      : config(Json::parse(PeftConfigJson(spec, "some/base"))) {
    uint64_t seed = 100;
    for (const LoraTarget& target : spec.targets) {
      for (LoraMatrix matrix : {LoraMatrix::kA, LoraMatrix::kB}) {
        tensors[LoraTensorName(target, matrix)] =
            RandomTensor(LoraTensorShape(target, matrix, spec.rank), ++seed, dtype);
      }
    }
  }

  void Write(const std::string& dir) const {
    WriteText(dir + "/" + kAdapterConfigFile, config.dump());
    WriteTensors(dir + "/" + kAdapterWeightsFile, tensors);
  }
};

}  // namespace tandem::testing
