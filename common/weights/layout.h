// The place of each HF tensor in the storage that a model executes from: fused qkv and gate_up,
// packed linear weights, a tied head stored once. Only this file knows about fusion and packing;
// all other code uses HF names and unfused shapes (docs/explanation/weights.md).
//
// The storage has one group for the global tensors (embedding, final norm, head) and one group of
// equal size per layer, so that a trainer can hold a single layer in a gather buffer while a
// rollout holds them all: group g of a full storage starts at group_offset(g).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/memory/op_sizes.h"
#include "common/model_spec/model_spec.h"
#include "common/types/tensor_view.h"

namespace tandem {

// One HF tensor inside its group.
struct TensorPlace {
  std::string name;            // HF name
  std::vector<int64_t> shape;  // HF shape, [rows, cols] or [rows]
  int layer = -1;              // -1: the global group
  const char* stored_as = "";  // the (fused) tensor it is part of: "qkv", "gate_up", ...
  int64_t offset = 0;          // bytes from the group's start to that tensor
  bool packed = false;         // packed_weight.h panels, else dense row-major
  int64_t fused_row = 0;       // its first row in the fused tensor
  // Elements from the start of the group's dense fp32 gradients (those of fused tensors are
  // adjacent there, so that a fused gradient is one block).
  int64_t gradient_offset = 0;
  int64_t rows() const { return shape[0]; }
  int64_t cols() const { return shape.size() == 2 ? shape[1] : 1; }
};

// The adapters of one product: A of all its parts is stacked, `rank` rows each, and B of each part
// has the rows of that part in the product (AdaptedProduct).
struct AdapterOffsets {
  int64_t a = -1, b = -1;
};
// Byte offsets inside a layer's group; -1 where the model has no such tensor.
struct LayerOffsets {
  int64_t input_norm = -1, qkv = -1, qkv_bias = -1, q_norm = -1, k_norm = -1, o = -1;
  int64_t post_norm = -1, gate_up = -1, down = -1;
  AdapterOffsets qkv_adapter, o_adapter, gate_up_adapter, down_adapter;
};
// Byte offsets inside the global group; a tied head has the embedding's.
struct GlobalOffsets {
  int64_t embedding = -1, final_norm = -1, head = -1;
};

// Immutable after Build; safe to share between threads.
class WeightLayout {
 public:
  // `dtype` is the compute dtype of every tensor, kBFloat16 or kFloat32.
  static WeightLayout Build(const ModelSpec& spec,
                            DType dtype,
                            WeightFormat format = WeightFormat::kPanels);
  // A layout for matrices that are not a model's, row-major, in the given order and all in the
  // global group. Reads only their names and shapes.
  static WeightLayout OfMatrices(std::vector<TensorPlace> matrices, DType dtype);

  DType dtype() const { return dtype_; }
  int64_t global_bytes() const { return global_bytes_; }  // multiples of 4096
  int64_t layer_bytes() const { return layer_bytes_; }
  int64_t num_layers() const { return num_layers_; }
  int64_t total_bytes() const { return global_bytes_ + num_layers_ * layer_bytes_; }
  // layer -1 is the global group.
  int64_t group_offset(int layer) const {
    return layer < 0 ? 0 : global_bytes_ + layer * layer_bytes_;
  }
  const LayerOffsets& layer_offsets() const { return layer_; }
  const GlobalOffsets& global_offsets() const { return global_; }
  // Elements of a group's dense fp32 gradients.
  int64_t group_elements(int layer) const { return layer < 0 ? global_elements_ : layer_elements_; }
  // Execution order: embedding, layers, final norm, head (untied only); then A and B of adapters
  // that are not merged (AdapterTensors).
  const std::vector<TensorPlace>& places() const { return places_; }
  // How many places precede those of adapters.
  size_t base_tensors() const { return base_tensors_; }
  // NotFound names the tensor.
  absl::StatusOr<const TensorPlace*> Find(const std::string& name) const;

  // Moves rows between dense row-major bytes and the group's storage. `group` is the address of
  // the tensor's group, in a full storage or in a gather buffer.
  // Rows of a packed tensor may be written concurrently only where they share no panel of 16.
  void WriteRows(std::byte* group,
                 const TensorPlace& place,
                 int64_t row0,
                 int64_t rows,
                 const void* source) const;
  void ReadRows(const std::byte* group,
                const TensorPlace& place,
                int64_t row0,
                int64_t rows,
                void* dest) const;

 private:
  DType dtype_ = DType::kBFloat16;
  int64_t global_bytes_ = 0, layer_bytes_ = 0, num_layers_ = 0;
  int64_t global_elements_ = 0, layer_elements_ = 0;
  LayerOffsets layer_;
  GlobalOffsets global_;
  std::vector<TensorPlace> places_;
  size_t base_tensors_ = 0;
  std::unordered_map<std::string, size_t> index_;
};

// Padding: bytes of the storage outside any tensor; always zero. It is the padding inside packed
// weights, which products read, and the gaps between tensors. No digest of a tensor covers it.

// Bytes [begin, end) of a group, between two stored tensors or after the last.
struct PaddingGap {
  int layer = -1;
  int64_t begin = 0, end = 0;
  std::string after;  // the stored tensor before it
  int64_t bytes() const { return end - begin; }
};

// The gaps of all groups, without empty ones. The padding inside packed weights is not included.
std::vector<PaddingGap> PaddingGaps(const WeightLayout& layout);
// `held` has the gap's bytes. DataLoss names layer, stored tensor and the first byte that is not
// zero.
absl::Status CheckZero(const PaddingGap& gap, const std::byte* held);

// OK if all padding of a full storage in host memory (layout.total_bytes()) is zero, otherwise
// DataLoss as above. Takes about as long as reading the padding.
absl::Status CheckPadding(const WeightLayout& layout, const std::byte* storage);

}  // namespace tandem
