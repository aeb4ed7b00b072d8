// Which rows of which tensor each rank owns, and where they lie in its shard (FSDP2: every tensor
// is cut on dim 0 into equal chunks rounded up; the last ranks may own fewer rows or none).
#pragma once

#include <cstdint>
#include <vector>

#include "common/weights/layout.h"

namespace tandem {

// Masters, their gradients and moments are float32.
inline constexpr auto kFloat32Bytes = static_cast<int64_t>(sizeof(float));

// Immutable; safe to share between threads. A shard is one dense array of elements: groups in the
// order global, layer 0, 1, ...; inside a group tensors in the order of their gradient offsets.
// With one rank a group of the shard has therefore the very order of a group of gradients.
class ShardPlan {
 public:
  // `layout` must outlive the plan.
  ShardPlan(const WeightLayout* layout, int rank, int world_size);

  struct Piece {
    int64_t row = 0;       // first row of the tensor
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
  // In shard order.
  const std::vector<const TensorPlace*>& tensors() const { return tensors_; }
  // Index into tensors().
  size_t IndexOf(const TensorPlace& place) const;

  const Piece& piece(size_t tensor, int rank) const {
    return pieces_[static_cast<size_t>(rank)][tensor];
  }
  const Piece& mine(size_t tensor) const { return piece(tensor, rank_); }
  int64_t elements(int rank) const { return elements_[static_cast<size_t>(rank)]; }
  // Elements of the whole model.
  int64_t total_elements() const { return total_elements_; }
  Group group(int layer) const { return groups_[static_cast<size_t>(layer + 1)]; }
  // Elements of the group in the rank's shard; they are contiguous.
  int64_t group_elements(int layer, int rank) const;
  int64_t group_offset(int layer, int rank) const;
  // Elements of one layer in this rank's shard; all of them where there are no layers.
  int64_t layer_elements() const {
    return group_elements(layout_->num_layers() > 0 ? 0 : -1, rank_);
  }
  // Whether each group of the shard has its tensors where the layout has them, and begins as
  // aligned as they do if the shard does: what reads a group that is laid out can read the shard.
  bool is_laid_out() const { return is_laid_out_; }
  // Elements of the tensor on every rank.
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
