// The rows of each tensor that each rank owns, and their offsets in its shard (FSDP2: every tensor
// is split on dim 0 into equal chunks, rounded up; the last ranks may own fewer rows or none).
#pragma once

#include <cstdint>
#include <vector>

#include "common/weights/layout.h"

namespace tandem {

// Masters, their gradients and moments are float32.
inline constexpr auto kFloat32Bytes = static_cast<int64_t>(sizeof(float));

// Immutable; safe to share between threads. A shard is one dense array of elements: groups in the
// order global, layer 0, 1, ...; inside a group tensors in the order of their gradient offsets.
// With one rank, a group of the shard therefore has the order of a group of gradients.
class ShardPlan {
 public:
  // `layout` must outlive the plan.
  ShardPlan(const WeightLayout* layout, int rank, int world_size);

  struct Piece {
    int64_t row = 0;       // first row in the tensor
    int64_t rows = 0;      // may be 0
    int64_t offset = 0;    // elements from the start of the rank's shard
    int64_t elements = 0;  // rows * cols
  };
  struct Group {
    size_t first = 0;  // tensors [first, last) of tensors()
    size_t last = 0;
  };

  const WeightLayout& layout() const { return *layout_; }
  int rank() const { return rank_; }
  int world_size() const { return static_cast<int>(pieces_.size()); }
  // The tensors in shard order.
  const std::vector<const TensorPlace*>& tensors() const { return tensors_; }
  // Index into tensors().
  size_t IndexOf(const TensorPlace& place) const;

  const Piece& piece(size_t tensor, int rank) const {
    return pieces_[static_cast<size_t>(rank)][tensor];
  }
  const Piece& mine(size_t tensor) const { return piece(tensor, rank_); }
  int64_t elements(int rank) const { return elements_[static_cast<size_t>(rank)]; }
  // Number of elements of the complete model.
  int64_t total_elements() const { return total_elements_; }
  Group group(int layer) const { return groups_[static_cast<size_t>(layer + 1)]; }
  // Number and offset of the group's elements in the rank's shard; they are contiguous.
  int64_t group_elements(int layer, int rank) const;
  int64_t group_offset(int layer, int rank) const;
  // Number of elements of one layer in this rank's shard; of the global group if there are no
  // layers.
  int64_t layer_elements() const {
    return group_elements(layout_->num_layers() > 0 ? 0 : -1, rank_);
  }
  // Whether each group of the shard has its tensors at the layout's offsets, and is as aligned as
  // the shard itself. Code that reads groups in the layout can then read the shard directly.
  bool is_laid_out() const { return is_laid_out_; }
  // Number of the tensor's elements on every rank.
  std::vector<int64_t> CountsPerRank(size_t tensor) const;

 private:
  bool IsLaidOut() const;

  const WeightLayout* layout_;
  int rank_;
  std::vector<const TensorPlace*> tensors_;
  std::vector<size_t> shard_index_;         // of each place, in the layout's order
  std::vector<Group> groups_;               // [layers + 1], global first
  std::vector<std::vector<Piece>> pieces_;  // [rank][tensor]
  std::vector<int64_t> elements_;
  int64_t total_elements_ = 0;
  bool is_laid_out_ = false;
};

}  // namespace tandem
