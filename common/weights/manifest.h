// What an update carries: every tensor by HF name, dtype and HF shape.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/types/tensor_view.h"
#include "common/weights/layout.h"

namespace tandem {

struct ManifestTensor {
  std::string name;
  DType dtype = DType::kBFloat16;
  std::vector<int64_t> shape;  // [rows] or [rows, cols]

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t row_bytes() const;
  int64_t bytes() const { return rows() * row_bytes(); }
};

// Order matters: entries and digests name tensors by index.
using Manifest = std::vector<ManifestTensor>;

int64_t ManifestBytes(const Manifest& manifest);
// What an update carries: everything, or A and B of adapters that are not merged, where the base
// stays as it is.
enum class UpdateScope { kWhole, kAdapters };

// The part of layout.places() that an update of this scope carries.
std::span<const TensorPlace> PlacesOf(const WeightLayout& layout, UpdateScope scope);
// What of it `layout` holds, in its order.
Manifest ManifestOf(const WeightLayout& layout, UpdateScope scope = UpdateScope::kWhole);
// The place of every tensor, in manifest order. InvalidArgument counts and names what is missing,
// unexpected, doubled, or of another dtype or shape. The result points into `layout`.
absl::StatusOr<std::vector<const TensorPlace*>> MatchManifest(
    const WeightLayout& layout, const Manifest& manifest, UpdateScope scope = UpdateScope::kWhole);

}  // namespace tandem
