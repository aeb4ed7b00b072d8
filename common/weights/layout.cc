#include "common/weights/layout.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/base/numeric.h"
#include "common/base/status.h"
#include "common/memory/memory_formulas.h"
#include "common/ops/cpu/packed_weight.h"

namespace tandem {
namespace {

constexpr int64_t kGroupAlignment = 4096;

// Allocates byte ranges of one group.
class GroupCursor {
 public:
  GroupCursor(DType dtype, WeightFormat format) : dtype_(dtype), format_(format) {}
  int64_t Linear(int64_t rows, int64_t cols) {
    if (format_ == WeightFormat::kRowMajor) return Dense(rows * cols);
    return Take(PackedBytes(rows, cols, dtype_));
  }
  int64_t Dense(int64_t elements) {
    return Take(elements * static_cast<int64_t>(DTypeBytes(dtype_)));
  }
  int64_t total() const { return RoundUp(next_, kGroupAlignment); }

 private:
  int64_t Take(int64_t bytes) {
    const int64_t offset = next_;
    next_ = RoundUp(next_ + bytes, kTensorAlignment);
    return offset;
  }
  DType dtype_;
  WeightFormat format_;
  int64_t next_ = 0;
};

// Where a tensor of a layer is stored, by the last part of its HF name.
struct Role {
  const char* suffix;
  const char* stored_as;
  int64_t offset;
  bool linear;  // a matrix that the ops multiply by, or the embedding
  int64_t fused_row;
};

// Where a matrix of an adapter is stored.
struct AdapterRole {
  std::string suffix;
  const char* stored_as;
  int64_t offset;
  int64_t fused_row;
};
struct AdapterNames {
  const char* a;
  const char* b;
};
constexpr AdapterNames kAdapterNames[] = {{"qkv_lora_A", "qkv_lora_B"},
                                          {"o_lora_A", "o_lora_B"},
                                          {"gate_up_lora_A", "gate_up_lora_B"},
                                          {"down_lora_A", "down_lora_B"}};

std::vector<AdapterOffsets LayerOffsets::*> AdapterMembers() {
  return {&LayerOffsets::qkv_adapter, &LayerOffsets::o_adapter, &LayerOffsets::gate_up_adapter,
          &LayerOffsets::down_adapter};  // in the order of AdaptedProducts
}

// A's parts lie below each other; row n of B belongs to row n of the product.
std::vector<AdapterRole> AdapterRoles(const ModelSpec& spec, const LayerOffsets& at) {
  std::vector<AdapterRole> roles;
  const std::vector<AdaptedProduct> products = AdaptedProducts(spec);
  for (size_t i = 0; i < products.size(); ++i) {
    const AdapterOffsets offsets = at.*AdapterMembers()[i];
    int64_t row = 0;
    for (size_t part = 0; part < products[i].modules.size(); ++part) {
      const std::string module = products[i].modules[part];
      roles.push_back({module + ".lora_A.weight", kAdapterNames[i].a, offsets.a,
                       static_cast<int64_t>(part) * spec.adapters.rank});
      roles.push_back({module + ".lora_B.weight", kAdapterNames[i].b, offsets.b, row});
      row += products[i].rows[part];
    }
  }
  return roles;
}

std::vector<Role> LayerRoles(const ModelSpec& spec, const LayerOffsets& at) {
  const int64_t q = spec.q_rows(), kv = spec.kv_rows();
  return {{"input_layernorm.weight", "input_norm", at.input_norm, false, 0},
          {"self_attn.q_proj.weight", "qkv", at.qkv, true, 0},
          {"self_attn.k_proj.weight", "qkv", at.qkv, true, q},
          {"self_attn.v_proj.weight", "qkv", at.qkv, true, q + kv},
          {"self_attn.q_proj.bias", "qkv_bias", at.qkv_bias, false, 0},
          {"self_attn.k_proj.bias", "qkv_bias", at.qkv_bias, false, q},
          {"self_attn.v_proj.bias", "qkv_bias", at.qkv_bias, false, q + kv},
          {"self_attn.q_norm.weight", "q_norm", at.q_norm, false, 0},
          {"self_attn.k_norm.weight", "k_norm", at.k_norm, false, 0},
          {"self_attn.o_proj.weight", "o", at.o, true, 0},
          {"post_attention_layernorm.weight", "post_norm", at.post_norm, false, 0},
          {"mlp.gate_proj.weight", "gate_up", at.gate_up, true, 0},
          {"mlp.up_proj.weight", "gate_up", at.gate_up, true, spec.intermediate_size},
          {"mlp.down_proj.weight", "down", at.down, true, 0}};
}

LayerOffsets PlaceLayer(const ModelSpec& spec, GroupCursor& cursor) {
  LayerOffsets at;
  at.input_norm = cursor.Dense(spec.hidden_size);
  at.qkv = cursor.Linear(spec.qkv_rows(), spec.hidden_size);
  if (spec.qkv_bias) at.qkv_bias = cursor.Dense(spec.qkv_rows());
  if (spec.qk_norm) {
    at.q_norm = cursor.Dense(spec.head_dim);
    at.k_norm = cursor.Dense(spec.head_dim);
  }
  at.o = cursor.Linear(spec.hidden_size, spec.q_rows());
  at.post_norm = cursor.Dense(spec.hidden_size);
  at.gate_up = cursor.Linear(2 * spec.intermediate_size, spec.hidden_size);
  at.down = cursor.Linear(spec.hidden_size, spec.intermediate_size);
  const std::vector<AdaptedProduct> products = AdaptedProducts(spec);
  for (size_t i = 0; i < products.size(); ++i) {
    if (!products[i].any) continue;
    AdapterOffsets& adapter = at.*AdapterMembers()[i];
    adapter.a = cursor.Linear(products[i].parts() * spec.adapters.rank, products[i].in);
    adapter.b = cursor.Linear(products[i].out(), spec.adapters.rank);
  }
  return at;
}

GlobalOffsets PlaceGlobals(const ModelSpec& spec, GroupCursor& cursor) {
  GlobalOffsets at;
  at.embedding = cursor.Linear(spec.vocab_size, spec.hidden_size);
  at.final_norm = cursor.Dense(spec.hidden_size);
  at.head =
      spec.tie_word_embeddings ? at.embedding : cursor.Linear(spec.vocab_size, spec.hidden_size);
  return at;
}

TensorPlace PlaceTensor(const TensorSpec& tensor,
                        const std::vector<Role>& roles,
                        WeightFormat format) {
  for (const Role& role : roles) {
    if (!tensor.name.ends_with(role.suffix)) continue;
    TensorPlace place;
    place.name = tensor.name;
    place.shape = tensor.shape;
    place.layer = tensor.layer;
    place.stored_as = role.stored_as;
    place.offset = role.offset;
    place.packed = role.linear && format == WeightFormat::kPanels;
    place.fused_row = role.fused_row;
    return place;
  }
  CheckFailed("tensor has a role", __FILE__, __LINE__, tensor.name);
}

TensorPlace PlaceAdapter(const TensorSpec& tensor,
                         const std::vector<AdapterRole>& roles,
                         WeightFormat format) {
  for (const AdapterRole& role : roles) {
    if (!tensor.name.ends_with(role.suffix)) continue;
    return {.name = tensor.name,
            .shape = tensor.shape,
            .layer = tensor.layer,
            .stored_as = role.stored_as,
            .offset = role.offset,
            .packed = format == WeightFormat::kPanels,
            .fused_row = role.fused_row};
  }
  CheckFailed("adapter has a role", __FILE__, __LINE__, tensor.name);
}

// Gives every place its range of the group's dense gradients. The order is that of storage offset,
// then fused row, so that q, k and v (and gate and up) are adjacent.
int64_t PlaceGradients(std::vector<TensorPlace*> group) {
  std::sort(group.begin(), group.end(), [](const TensorPlace* a, const TensorPlace* b) {
    return std::pair(a->offset, a->fused_row) < std::pair(b->offset, b->fused_row);
  });
  int64_t next = 0;
  for (TensorPlace* place : group) {
    place->gradient_offset = next;
    next += NumElements(place->shape);
  }
  return next;
}

}  // namespace

WeightLayout WeightLayout::Build(const ModelSpec& spec, DType dtype, WeightFormat format) {
  WeightLayout layout;
  layout.dtype_ = dtype;
  layout.num_layers_ = spec.num_layers;
  GroupCursor layer_cursor(dtype, format), global_cursor(dtype, format);
  layout.layer_ = PlaceLayer(spec, layer_cursor);
  layout.global_ = PlaceGlobals(spec, global_cursor);
  layout.layer_bytes_ = layer_cursor.total();
  layout.global_bytes_ = global_cursor.total();

  const std::vector<Role> layer_roles = LayerRoles(spec, layout.layer_);
  const std::vector<Role> global_roles = {
      {"model.embed_tokens.weight", "embedding", layout.global_.embedding, true, 0},
      {"model.norm.weight", "final_norm", layout.global_.final_norm, false, 0},
      {"lm_head.weight", "head", layout.global_.head, true, 0}};
  for (const TensorSpec& tensor : HfTensors(spec)) {
    layout.index_[tensor.name] = layout.places_.size();
    layout.places_.push_back(
        PlaceTensor(tensor, tensor.layer < 0 ? global_roles : layer_roles, format));
  }
  layout.base_tensors_ = layout.places_.size();
  const std::vector<AdapterRole> adapter_roles = AdapterRoles(spec, layout.layer_);
  for (const TensorSpec& tensor : AdapterTensors(spec)) {
    layout.index_[tensor.name] = layout.places_.size();
    layout.places_.push_back(PlaceAdapter(tensor, adapter_roles, format));
  }
  std::vector<std::vector<TensorPlace*>> groups(static_cast<size_t>(spec.num_layers) + 1);
  for (TensorPlace& place : layout.places_) {
    groups[static_cast<size_t>(place.layer + 1)].push_back(&place);
  }
  layout.global_elements_ = PlaceGradients(groups[0]);
  for (size_t group = 1; group < groups.size(); ++group) {
    layout.layer_elements_ = std::max(layout.layer_elements_, PlaceGradients(groups[group]));
  }
  return layout;
}

WeightLayout WeightLayout::OfMatrices(std::vector<TensorPlace> matrices, DType dtype) {
  WeightLayout layout;
  layout.dtype_ = dtype;
  GroupCursor cursor(dtype, WeightFormat::kRowMajor);
  for (TensorPlace& place : matrices) {
    place = {.name = std::move(place.name), .shape = std::move(place.shape)};
    place.offset = cursor.Dense(NumElements(place.shape));
    place.gradient_offset = layout.global_elements_;
    layout.global_elements_ += NumElements(place.shape);
    layout.index_[place.name] = layout.places_.size();
    layout.places_.push_back(std::move(place));
  }
  layout.base_tensors_ = layout.places_.size();
  layout.global_bytes_ = cursor.total();
  return layout;
}

absl::StatusOr<const TensorPlace*> WeightLayout::Find(const std::string& name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    return MakeStatus(absl::StatusCode::kNotFound, "the model has no tensor named {}", name);
  }
  return &places_[found->second];
}

void WeightLayout::WriteRows(std::byte* group,
                             const TensorPlace& place,
                             int64_t row0,
                             int64_t rows,
                             const void* source) const {
  TANDEM_CHECK(row0 >= 0 && row0 + rows <= place.rows(), place.name);
  std::byte* tensor = group + place.offset;
  if (place.packed) {
    PackRows(tensor, place.cols(), dtype_, place.fused_row + row0, rows, source);
    return;
  }
  const size_t row_bytes = static_cast<size_t>(place.cols()) * DTypeBytes(dtype_);
  const size_t bytes = static_cast<size_t>(rows) * row_bytes;
  if (bytes == 0) return;  // `source` may be null, which memcpy forbids even then
  std::memcpy(tensor + static_cast<size_t>(place.fused_row + row0) * row_bytes, source, bytes);
}

void WeightLayout::ReadRows(const std::byte* group,
                            const TensorPlace& place,
                            int64_t row0,
                            int64_t rows,
                            void* dest) const {
  TANDEM_CHECK(row0 >= 0 && row0 + rows <= place.rows(), place.name);
  const std::byte* tensor = group + place.offset;
  if (place.packed) {
    UnpackRows(tensor, place.cols(), dtype_, place.fused_row + row0, rows, dest);
    return;
  }
  const size_t row_bytes = static_cast<size_t>(place.cols()) * DTypeBytes(dtype_);
  const size_t bytes = static_cast<size_t>(rows) * row_bytes;
  if (bytes == 0) return;  // `dest` may be null, as above
  std::memcpy(dest, tensor + static_cast<size_t>(place.fused_row + row0) * row_bytes, bytes);
}

namespace {

// A (fused) tensor as it is stored.
struct Stored {
  bool packed = false;
  int64_t rows = 0, cols = 0;
};

// Ordered by offset in the group, then by name: a tensor without bytes has the offset of the next
// one.
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

// Checks the padding inside a group's packed tensors.
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
    // Layers are stored alike, except for adapters that only some layers have.
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
