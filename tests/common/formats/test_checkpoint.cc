#include "tests/common/formats/test_checkpoint.h"

#include <stdexcept>

#include "common/formats/files.h"
#include "common/formats/safetensors.h"

namespace tandem::testing {
namespace {

void Must(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

}  // namespace

ModelSpec StoredSpec(bool tied) {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 12;
  spec.hidden_size = 8;
  spec.num_layers = 2;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 4;
  spec.intermediate_size = 10;
  spec.max_position = 64;
  spec.tie_word_embeddings = tied;
  spec.eos_token_ids = {2};
  return spec;
}

StoredTensors SmallTensors(const ModelSpec& spec) {
  StoredTensors tensors;
  float number = 0;
  for (const TensorSpec& tensor : HfTensors(spec)) {
    std::vector<float> values(static_cast<size_t>(NumElements(tensor.shape)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 8 + number;
    number += 1;
    tensors[tensor.name] = {
        DType::kFloat32, tensor.shape,
        std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float))};
  }
  return tensors;
}

void WriteStored(const std::string& path, const StoredTensors& tensors) {
  std::vector<TensorDeclaration> declarations;
  for (const auto& [name, tensor] : tensors) {
    declarations.push_back({name, tensor.dtype, tensor.shape});
  }
  auto writer = SafetensorsWriter::Create(path, declarations);
  Must(writer.status());
  for (const auto& [name, tensor] : tensors) {
    Must((*writer)->Write(name, tensor.bytes.data(), tensor.bytes.size()));
  }
  Must((*writer)->Finish());
}

void WriteTokenizerFiles(const std::string& dir) {
  Must(WriteFileAtomically(dir + "/tokenizer.json", "{\"version\": \"1.0\"}"));
  Must(WriteFileAtomically(dir + "/tokenizer_config.json", "{}"));
}

}  // namespace tandem::testing
