#include "common/weights/manifest.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

constexpr size_t kNamed = 5;  // tensors that an error names of each kind

// "3 missing (a, b, c)"; empty if there are none.
std::string Finding(const std::string& what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string list;
  for (size_t i = 0; i < names.size() && i < kNamed; ++i) list += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamed) list += ", ...";
  return fmt::format("{} {} ({}); ", names.size(), what, list);
}

std::string DescribeTensor(DType dtype, const std::vector<int64_t>& shape) {
  return DTypeName(dtype) + " " + ShapeText(shape);
}

}  // namespace

int64_t ManifestTensor::row_bytes() const {
  int64_t bytes = static_cast<int64_t>(DTypeBytes(dtype));
  for (size_t i = 1; i < shape.size(); ++i) bytes *= shape[i];
  return bytes;
}

int64_t ManifestBytes(const Manifest& manifest) {
  int64_t bytes = 0;
  for (const ManifestTensor& tensor : manifest) bytes += tensor.bytes();
  return bytes;
}

std::span<const TensorPlace> PlacesOf(const WeightLayout& layout, UpdateScope scope) {
  const std::span<const TensorPlace> all(layout.places());
  return scope == UpdateScope::kWhole ? all : all.subspan(layout.base_tensors());
}

Manifest ManifestOf(const WeightLayout& layout, UpdateScope scope) {
  Manifest manifest;
  for (const TensorPlace& place : PlacesOf(layout, scope)) {
    manifest.push_back({place.name, layout.dtype(), place.shape});
  }
  return manifest;
}

absl::StatusOr<std::vector<const TensorPlace*>> MatchManifest(const WeightLayout& layout,
                                                              const Manifest& manifest,
                                                              UpdateScope scope) {
  const std::span<const TensorPlace> wanted = PlacesOf(layout, scope);
  std::vector<const TensorPlace*> places;
  std::vector<std::string> missing, unexpected, doubled, different;
  std::unordered_set<std::string> seen;
  for (const ManifestTensor& tensor : manifest) {
    const auto place = layout.Find(tensor.name);
    if (!seen.insert(tensor.name).second) {
      doubled.push_back(tensor.name);
    } else if (!place.ok() || *place < wanted.data()) {
      unexpected.push_back(tensor.name);
    } else if (tensor.dtype != layout.dtype() || tensor.shape != (*place)->shape) {
      different.push_back(fmt::format("{} is {} here and {} there", tensor.name,
                                      DescribeTensor(layout.dtype(), (*place)->shape),
                                      DescribeTensor(tensor.dtype, tensor.shape)));
    } else {
      places.push_back(*place);
    }
  }
  for (const TensorPlace& place : wanted) {
    if (seen.count(place.name) == 0) missing.push_back(place.name);
  }
  const std::string findings = Finding("missing", missing) + Finding("unexpected", unexpected) +
                               Finding("doubled", doubled) +
                               Finding("of another dtype or shape", different);
  if (!findings.empty()) {
    return InvalidArgument(
        "the manifest does not fit the rollout's model: {}trainer and rollout must load the same "
        "model.path and compute_dtype, and the same adapters",
        findings);
  }
  return places;
}

}  // namespace tandem
