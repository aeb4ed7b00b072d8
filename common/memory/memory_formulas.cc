#include "common/memory/memory_formulas.h"

#include <algorithm>
#include <optional>

#include "common/base/numeric.h"
#include "common/memory/op_sizes.h"
#include "common/types/tensor_view.h"

namespace tandem {

namespace {

constexpr int64_t kRegionPage = int64_t{2} << 20;
constexpr int64_t kGroupAlignment = 4096;

// Sums the tensors of a group.
class GroupBytes {
 public:
  explicit GroupBytes(int64_t element_bytes, bool row_major = false)
      : element_bytes_(element_bytes), row_major_(row_major) {}
  void Packed(int64_t rows, int64_t cols) {
    if (row_major_) return Dense(rows * cols);
    Add(PackedWeightBytes(rows, cols, element_bytes_), rows * cols);
  }
  void Dense(int64_t elements) { Add(elements * element_bytes_, elements); }
  int64_t total() const { return RoundUp(bytes_, kGroupAlignment); }
  bool row_major_is_dense() const { return row_major_is_dense_; }

 private:
  void Add(int64_t bytes, int64_t elements) {
    bytes_ += RoundUp(bytes, kTensorAlignment);
    row_major_is_dense_ = row_major_is_dense_ && elements * element_bytes_ % kTensorAlignment == 0;
  }
  const int64_t element_bytes_;
  const bool row_major_;
  int64_t bytes_ = 0;
  bool row_major_is_dense_ = true;
};

GroupBytes Globals(const ModelSpec& spec, int64_t element_bytes, bool row_major = false) {
  GroupBytes group(element_bytes, row_major);
  group.Packed(spec.vocab_size, spec.hidden_size);
  group.Dense(spec.hidden_size);
  if (!spec.tie_word_embeddings) group.Packed(spec.vocab_size, spec.hidden_size);
  return group;
}

GroupBytes Layer(const ModelSpec& spec, int64_t element_bytes, bool row_major = false) {
  GroupBytes group(element_bytes, row_major);
  group.Dense(spec.hidden_size);
  group.Packed(spec.qkv_rows(), spec.hidden_size);
  if (spec.qkv_bias) group.Dense(spec.qkv_rows());
  if (spec.qk_norm) group.Dense(spec.head_dim);
  if (spec.qk_norm) group.Dense(spec.head_dim);
  group.Packed(spec.hidden_size, spec.q_rows());
  group.Dense(spec.hidden_size);
  group.Packed(2 * spec.intermediate_size, spec.hidden_size);
  group.Packed(spec.hidden_size, spec.intermediate_size);
  for (const AdaptedProduct& product : AdaptedProducts(spec)) {
    if (!product.any) continue;
    group.Packed(product.parts() * spec.adapters.rank, product.in);
    group.Packed(product.out(), spec.adapters.rank);
  }
  return group;
}

}  // namespace

int64_t RegionBytes(int64_t bytes) { return RoundUp(bytes, kRegionPage); }

int64_t KvBlockLayerBytes(const ModelSpec& spec, int64_t element_bytes) {
  return spec.num_kv_heads * KvHeadBytes(spec.head_dim, element_bytes);
}

int64_t KvBlockBytesOfAllLayers(const ModelSpec& spec, int64_t element_bytes) {
  return KvBlockLayerBytes(spec, element_bytes) * spec.num_layers;
}

int64_t LayerParameters(const ModelSpec& spec) {
  int64_t parameters = 0;
  for (const TensorSpec& tensor : HfTensors(spec)) {
    if (tensor.layer == 0) parameters += NumElements(tensor.shape);
  }
  return parameters;
}

int64_t GlobalParameters(const ModelSpec& spec) {
  return spec.parameters() - spec.num_layers * LayerParameters(spec);
}

RowRange ShardRows(int64_t rows, int64_t rank, int64_t world) {
  const int64_t chunk = (rows + world - 1) / world;
  return {std::min(rank * chunk, rows), std::min((rank + 1) * chunk, rows)};
}

namespace {

// Of the tensors of `layer`, or of all.
int64_t OwnedParameters(const ModelSpec& spec,
                        int64_t rank,
                        int64_t world,
                        std::optional<int> layer) {
  int64_t parameters = 0;
  for (const TensorSpec& tensor : HfTensors(spec)) {
    if (layer && tensor.layer != *layer) continue;
    const int64_t row_elements = NumElements(tensor.shape) / tensor.shape[0];
    parameters += ShardRows(tensor.shape[0], rank, world).rows() * row_elements;
  }
  return parameters;
}

}  // namespace

int64_t ShardParameters(const ModelSpec& spec, int64_t rank, int64_t world) {
  return OwnedParameters(spec, rank, world, std::nullopt);
}

int64_t LayerShardParameters(const ModelSpec& spec, int64_t rank, int64_t world) {
  return OwnedParameters(spec, rank, world, 0);
}

int64_t GlobalWeightBytes(const ModelSpec& spec, int64_t element_bytes) {
  return Globals(spec, element_bytes).total();
}

int64_t LayerWeightBytes(const ModelSpec& spec, int64_t element_bytes) {
  return Layer(spec, element_bytes).total();
}

bool RowMajorIsDense(const ModelSpec& spec, int64_t element_bytes) {
  return Globals(spec, element_bytes).row_major_is_dense() &&
         Layer(spec, element_bytes).row_major_is_dense();
}

int64_t WeightBytes(const ModelSpec& spec, int64_t element_bytes) {
  return GlobalWeightBytes(spec, element_bytes) +
         spec.num_layers * LayerWeightBytes(spec, element_bytes);
}

int64_t OffloadWindowElements(int64_t layer_shard_elements) {
  return std::max<int64_t>(layer_shard_elements, 1);
}

int64_t TrainerKeptBytes(int64_t device_bytes, double rollout_utilization) {
  return static_cast<int64_t>(std::max(0.0, 0.9 - rollout_utilization) *
                              static_cast<double>(device_bytes));
}

GroupSizes WeightGroups(const ModelSpec& spec, int64_t element_bytes, bool row_major) {
  return {.global = Globals(spec, element_bytes, row_major).total(),
          .layer = Layer(spec, element_bytes, row_major).total(),
          .layers = spec.num_layers};
}

GatherSizes GatherSizesOf(const GroupSizes& groups, const GatherOptions& options) {
  const bool small = groups.total() <= options.kept_bytes / 8;
  const bool all = options.ranks == 1 || options.reshard == Reshard::kNever ||
                   (options.reshard == Reshard::kAuto && small);
  // The layer that computes, and the next one, which is gathered at the same time.
  const int64_t streamed = std::min<int64_t>(options.prefetch ? 2 : 1, groups.layers);
  GatherSizes sizes{.layers = all ? groups.layers : streamed};
  sizes.places = groups.global + sizes.layers * groups.layer;
  if (options.ranks > 1) sizes.staging = std::max(groups.global, groups.layer);
  return sizes;
}

int64_t KeptSlotBytes(int64_t kept_bytes) { return kept_bytes / 32; }

int64_t FittingKvBlocks(const ModelSpec& spec, int64_t element_bytes, const KvPoolPlan& plan) {
  const auto bound =
      static_cast<int64_t>(plan.memory_utilization * static_cast<double>(plan.device_bytes));
  return std::max<int64_t>(0, bound - plan.weight_bytes) /
         KvBlockBytesOfAllLayers(spec, element_bytes);
}

int64_t KvPoolBlocks(const ModelSpec& spec, int64_t element_bytes, const KvPoolPlan& plan) {
  return std::min(plan.max_num_seqs * KvBlocksFor(plan.max_model_len),
                  FittingKvBlocks(spec, element_bytes, plan));
}

}  // namespace tandem
