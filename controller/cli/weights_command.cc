#include "controller/cli/weights_command.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/status_macros.h"
#include "common/model_spec/model_spec.h"
#include "common/weights/layout.h"
#include "common/weights/manifest.h"
#include "controller/report/format.h"

namespace tandem {
namespace {

constexpr char kHead[] = "lm_head.weight";
constexpr char kEmbedding[] = "model.embed_tokens.weight";

// Bytes from the start of a full storage to the stored tensor.
int64_t StorageOffset(const WeightLayout& layout, const TensorPlace& place) {
  return layout.group_offset(place.layer) + place.offset;
}

std::string Table(const ModelSpec& spec, const WeightLayout& layout) {
  std::vector<std::vector<std::string>> rows = {
      {"tensor", "dtype", "shape", "bytes", "layer", "stored in", "from row", "form", "offset"}};
  const Manifest manifest = ManifestOf(layout);
  for (size_t t = 0; t < manifest.size(); ++t) {
    const TensorPlace& place = layout.places()[t];
    rows.push_back({manifest[t].name, DTypeName(manifest[t].dtype), ShapeText(manifest[t].shape),
                    std::to_string(manifest[t].bytes()),
                    place.layer < 0 ? "-" : std::to_string(place.layer), place.stored_as,
                    std::to_string(place.fused_row), place.packed ? "packed" : "dense",
                    std::to_string(StorageOffset(layout, place))});
  }
  std::string text = FormatTable(rows);
  if (spec.tie_word_embeddings) {
    text += fmt::format("{} is tied to {}: the same bytes, counted once\n", kHead, kEmbedding);
  }
  return text +
         fmt::format("{} tensors, {} bytes; a rollout's storage has {} bytes, padding included\n",
                     manifest.size(), ManifestBytes(manifest), layout.total_bytes());
}

nlohmann::ordered_json LayoutJson(const ModelSpec& spec, const WeightLayout& layout) {
  nlohmann::ordered_json json;
  json["tensors"] = nlohmann::ordered_json::array();
  const Manifest manifest = ManifestOf(layout);
  for (size_t t = 0; t < manifest.size(); ++t) {
    const TensorPlace& place = layout.places()[t];
    json["tensors"].push_back({{"name", manifest[t].name},
                               {"dtype", DTypeName(manifest[t].dtype)},
                               {"shape", manifest[t].shape},
                               {"bytes", manifest[t].bytes()},
                               {"layer", place.layer},
                               {"stored_in", place.stored_as},
                               {"row", place.fused_row},
                               {"packed", place.packed},
                               {"offset", StorageOffset(layout, place)}});
  }
  json["tied"] = nlohmann::ordered_json::object();
  if (spec.tie_word_embeddings) json["tied"][kHead] = kEmbedding;
  json["total"] = {{"tensors", manifest.size()},
                   {"bytes", ManifestBytes(manifest)},
                   {"storage_bytes", layout.total_bytes()}};
  return json;
}

}  // namespace

absl::Status WeightsManifestCommand(const WeightsManifestOptions& options, std::ostream& out) {
  TANDEM_ASSIGN_OR_RETURN(const ModelSpec spec, LoadModelSpec(options.model_dir));
  const DType dtype = options.dtype == "float32" ? DType::kFloat32 : DType::kBFloat16;
  const WeightLayout layout = WeightLayout::Build(spec, dtype);
  out << (options.json ? LayoutJson(spec, layout).dump(2) + "\n" : Table(spec, layout));
  return absl::OkStatus();
}

}  // namespace tandem
