#include "common/weights/padding.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "common/base/status_macros.h"
#include "common/ops/cpu/packed_weight.h"

namespace tandem {
namespace {

// A (fused) tensor as it is stored.
struct Stored {
  bool packed = false;
  int64_t rows = 0, cols = 0;
};

// By offset in the group; what has no bytes shares its offset with the next one.
using StoredByOffset = std::map<std::pair<int64_t, std::string>, Stored>;

StoredByOffset StoredTensors(const WeightLayout& layout, int layer) {
  StoredByOffset tensors;
  for (const TensorPlace& place : layout.places()) {
    if (place.layer != layer) continue;
    Stored& stored = tensors[{place.offset, place.stored_as}];
    stored.packed = place.packed;
    stored.rows = std::max(stored.rows, place.fused_row + place.rows());
    stored.cols = place.cols();
  }
  return tensors;
}

absl::Status Dirty(int layer, const std::string& after, int64_t offset, std::byte value) {
  return MakeStatus(
      absl::StatusCode::kDataLoss,
      "the padding of {} in {} changed in this rollout's memory: byte {} of the group "
      "is {:#04x}, not 0",
      after, layer < 0 ? std::string("the global tensors") : fmt::format("layer {}", layer), offset,
      static_cast<unsigned>(value));
}

// One past a stored tensor's last byte.
int64_t EndOf(const WeightLayout& layout, int64_t offset, const Stored& stored) {
  const auto element = static_cast<int64_t>(DTypeBytes(layout.dtype()));
  return offset + (stored.packed ? PackedBytes(stored.rows, stored.cols, layout.dtype())
                                 : stored.rows * stored.cols * element);
}

std::vector<PaddingGap> GapsOf(const WeightLayout& layout, int layer) {
  std::vector<PaddingGap> gaps;
  PaddingGap gap = {layer, 0, 0, "the start"};
  const auto close = [&](int64_t end) {
    gap.end = end;
    if (gap.bytes() > 0) gaps.push_back(gap);
  };
  for (const auto& [key, stored] : StoredTensors(layout, layer)) {
    const auto& [offset, name] = key;
    close(offset);
    gap.begin = EndOf(layout, offset, stored);
    gap.after = name;
  }
  close(layer < 0 ? layout.global_bytes() : layout.layer_bytes());
  return gaps;
}

// The padding inside of a group's packed tensors.
absl::Status CheckPanels(const WeightLayout& layout,
                         int layer,
                         const StoredByOffset& tensors,
                         const std::byte* group) {
  for (const auto& [key, stored] : tensors) {
    const auto& [offset, name] = key;
    if (!stored.packed) continue;
    const int64_t at = FindDirtyPadding(group + offset, stored.rows, stored.cols, layout.dtype());
    if (at >= 0) return Dirty(layer, name, offset + at, group[offset + at]);
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<PaddingGap> PaddingGaps(const WeightLayout& layout) {
  std::vector<PaddingGap> gaps;
  for (int layer = -1; layer < layout.num_layers(); ++layer) {
    // Layers are stored alike, but for adapters that only some of them have.
    for (PaddingGap& gap : GapsOf(layout, layer)) gaps.push_back(std::move(gap));
  }
  return gaps;
}

absl::Status CheckZero(const PaddingGap& gap, const std::byte* held) {
  const std::byte* const end = held + gap.bytes();
  const std::byte* found = std::find_if(held, end, [](std::byte b) { return b != std::byte{0}; });
  return found == end ? absl::OkStatus()
                      : Dirty(gap.layer, gap.after, gap.begin + (found - held), *found);
}

absl::Status CheckPadding(const WeightLayout& layout, const std::byte* storage) {
  for (const PaddingGap& gap : PaddingGaps(layout)) {
    TANDEM_RETURN_IF_ERROR(CheckZero(gap, storage + layout.group_offset(gap.layer) + gap.begin));
  }
  for (int layer = -1; layer < layout.num_layers(); ++layer) {
    TANDEM_RETURN_IF_ERROR(CheckPanels(layout, layer, StoredTensors(layout, layer),
                                       storage + layout.group_offset(layer)));
  }
  return absl::OkStatus();
}

}  // namespace tandem
