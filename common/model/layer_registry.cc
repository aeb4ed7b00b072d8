#include "common/model/layer_registry.h"

#include <map>
#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "common/model/attention_mixer.h"
#include "common/model/swiglu_mlp.h"

namespace tandem {
namespace {

using Factory = DecoderLayer (*)(const ModelSpec&);

DecoderLayer AttentionAndSwiglu(const ModelSpec& spec) {
  return DecoderLayer{std::make_unique<AttentionMixer>(spec), std::make_unique<SwigluMlp>(spec)};
}

const std::map<std::string, Factory>& Registry() {
  static const std::map<std::string, Factory> registry = {{"llama", &AttentionAndSwiglu},
                                                          {"qwen2", &AttentionAndSwiglu},
                                                          {"qwen3", &AttentionAndSwiglu}};
  return registry;
}

}  // namespace

absl::StatusOr<DecoderLayer> MakeDecoderLayer(const ModelSpec& spec) {
  const auto found = Registry().find(spec.model_type);
  if (found != Registry().end()) return found->second(spec);
  std::vector<std::string> known;
  for (const auto& [name, factory] : Registry()) known.push_back(name);
  return MakeStatus(absl::StatusCode::kUnimplemented, "model type {} cannot be executed ({} can)",
                    spec.model_type, fmt::join(known, ", "));
}

}  // namespace tandem
