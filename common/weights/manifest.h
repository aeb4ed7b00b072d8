// The tensors of a weight update by HF name, dtype and HF shape, and how they are cut into buckets.
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
// Identifies an update. Its number, the field `generation` of messages, grows with every update of
// a pair, across restarts of the trainer too.
struct UpdateId {
  int64_t version = 0;
  int64_t update_number = 0;
  friend bool operator==(const UpdateId&, const UpdateId&) = default;
};

// Which tensors an update has: all of them, or A and B of separate adapters while the base stays
// unchanged.
enum class UpdateScope { kWhole, kAdapters };

// The part of layout.places() that an update of this scope carries.
std::span<const TensorPlace> PlacesOf(const WeightLayout& layout, UpdateScope scope);
// The manifest of these places, in the layout's order.
Manifest ManifestOf(const WeightLayout& layout, UpdateScope scope = UpdateScope::kWhole);
// The place of every tensor, in manifest order. InvalidArgument counts and names tensors that are
// missing, unexpected, doubled, or of another dtype or shape. The result points into `layout`.
absl::StatusOr<std::vector<const TensorPlace*>> MatchManifest(
    const WeightLayout& layout, const Manifest& manifest, UpdateScope scope = UpdateScope::kWhole);

// Cuts the tensors of a manifest into entries and the entries into buckets of one slot each.
inline constexpr int64_t kEntryAlignment = 256;  // bytes

// Rows [row, row + rows) of a tensor, dense, at `offset` bytes from the slot's start.
struct BucketEntry {
  int32_t tensor = 0;  // index into the manifest
  int64_t row = 0;
  int64_t rows = 0;
  int64_t offset = 0;
};

struct Bucket {
  std::vector<BucketEntry> entries;  // manifest order, rows ascending
  int64_t bytes = 0;                 // used of the slot
};

// Covers every row of every tensor once. InvalidArgument names a tensor with a row that does not
// fit into a slot. Pure function.
absl::StatusOr<std::vector<Bucket>> PlanBuckets(const Manifest& manifest, int64_t slot_bytes);

}  // namespace tandem
