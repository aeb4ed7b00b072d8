#include "trainer_worker/shard/shard_plan.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/memory/memory_formulas.h"

namespace tandem {

ShardPlan::ShardPlan(const WeightLayout* layout, int rank, int world_size)
    : layout_(layout), rank_(rank), pieces_(static_cast<size_t>(world_size)) {
  for (const TensorPlace& place : layout->places()) tensors_.push_back(&place);
  std::stable_sort(
      tensors_.begin(), tensors_.end(), [](const TensorPlace* a, const TensorPlace* b) {
        return std::pair(a->layer, a->gradient_offset) < std::pair(b->layer, b->gradient_offset);
      });
  groups_.resize(static_cast<size_t>(layout->num_layers()) + 1);
  shard_index_.resize(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    shard_index_[static_cast<size_t>(tensors_[i] - layout->places().data())] = i;
    Group& group = groups_[static_cast<size_t>(tensors_[i]->layer + 1)];
    if (group.last == 0) group.first = i;
    group.last = i + 1;
    total_elements_ += NumElements(tensors_[i]->shape);
  }
  for (int r = 0; r < world_size; ++r) {
    int64_t offset = 0;
    for (const TensorPlace* place : tensors_) {
      const RowRange rows = ShardRows(place->rows(), r, world_size);
      const int64_t elements = rows.rows() * place->cols();
      pieces_[static_cast<size_t>(r)].push_back({rows.begin, rows.rows(), offset, elements});
      offset += elements;
    }
    elements_.push_back(offset);
  }
  is_laid_out_ = IsLaidOut();
}

size_t ShardPlan::IndexOf(const TensorPlace& place) const {
  const auto index = &place - layout_->places().data();
  TANDEM_CHECK(index >= 0 && static_cast<size_t>(index) < shard_index_.size(), place.name);
  return shard_index_[static_cast<size_t>(index)];
}

int64_t ShardPlan::group_offset(int layer, int rank) const {
  return piece(group(layer).first, rank).offset;
}

int64_t ShardPlan::group_elements(int layer, int rank) const {
  const Piece& last = piece(group(layer).last - 1, rank);
  return last.offset + last.elements - group_offset(layer, rank);
}

bool ShardPlan::IsLaidOut() const {
  if (world_size() > 1) return false;
  const auto element = static_cast<int64_t>(DTypeBytes(layout_->dtype()));
  const auto aligned = [element](int64_t elements) {
    return elements * element % kTensorAlignment == 0;
  };
  for (int layer = -1; layer < layout_->num_layers(); ++layer) {
    if (!aligned(group_offset(layer, 0))) return false;
  }
  const auto same = [element](const TensorPlace* place) {
    const int64_t in_layout = place->offset + place->fused_row * place->cols() * element;
    return !place->packed && in_layout == place->gradient_offset * element;
  };
  return aligned(elements(0)) && std::all_of(tensors_.begin(), tensors_.end(), same);
}

std::vector<int64_t> ShardPlan::CountsPerRank(size_t tensor) const {
  std::vector<int64_t> counts;
  for (int r = 0; r < world_size(); ++r) counts.push_back(piece(tensor, r).elements);
  return counts;
}

}  // namespace tandem
