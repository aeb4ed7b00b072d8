#include "common/weights/manifest.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/base/numeric.h"
#include "common/base/status.h"
#include "common/ops/cpu/packed_weight.h"

namespace tandem {
namespace {

constexpr size_t kNamed = 5;  // tensors of each kind that an error names

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

absl::StatusOr<std::vector<Bucket>> PlanBuckets(const Manifest& manifest, int64_t slot_bytes) {
  std::vector<Bucket> buckets;
  for (size_t t = 0; t < manifest.size(); ++t) {
    const ManifestTensor& tensor = manifest[t];
    const int64_t row_bytes = tensor.row_bytes();
    if (tensor.bytes() == 0) continue;
    if (row_bytes > slot_bytes) {
      return InvalidArgument(
          "a row of {} has {} bytes and does not fit into a slot of {}: set weight_sync.bucket_mb "
          "to at least {}",
          tensor.name, row_bytes, slot_bytes, (row_bytes + (1 << 20) - 1) >> 20);
    }
    for (int64_t row = 0; row < tensor.rows();) {
      const int64_t used =
          buckets.empty() ? slot_bytes : RoundUp(buckets.back().bytes, kEntryAlignment);
      const int64_t fit = std::max<int64_t>(0, slot_bytes - used) / row_bytes;
      const int64_t left = tensor.rows() - row;
      // A tensor is cut between the panels of packed weights, if the slot has room for at least one
      // panel.
      const bool cut = fit < left && (used > 0 || fit >= kPackedPanelRows);
      const int64_t rows = cut ? fit - fit % kPackedPanelRows : std::min(fit, left);
      if (rows == 0) {
        buckets.emplace_back();
        continue;
      }
      buckets.back().entries.push_back({static_cast<int32_t>(t), row, rows, used});
      buckets.back().bytes = used + rows * row_bytes;
      row += rows;
    }
  }
  return buckets;
}

}  // namespace tandem
