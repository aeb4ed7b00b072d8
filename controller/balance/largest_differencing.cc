#include "controller/balance/largest_differencing.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace tandem {
namespace {

using Lists = std::vector<std::vector<int64_t>>;

struct Subset {
  int64_t sum = 0;
  std::vector<int64_t> items;

  void Join(const Subset& other) {
    sum += other.sum;
    items.insert(items.end(), other.items.begin(), other.items.end());
  }
};

bool Larger(const Subset& a, const Subset& b) {
  if (a.sum != b.sum) return a.sum > b.sum;
  if (a.items.size() != b.items.size()) return a.items.size() > b.items.size();
  return a.items > b.items;
}

// A partition of some of the values: its non-empty subsets, the one with the largest sum first.
struct Partial {
  std::vector<Subset> subsets;

  int64_t Spread(size_t parts) const {
    return subsets.front().sum - (subsets.size() < parts ? 0 : subsets.back().sum);
  }
  void Sort() { std::stable_sort(subsets.begin(), subsets.end(), Larger); }
  // Joins the smallest subsets of this partition with the largest of `other`. Both have `parts`
  // subsets, of which empty ones, the smallest, are not stored.
  void Join(Partial& other, size_t parts) {
    const size_t filled = subsets.size();
    for (size_t i = 0; i < other.subsets.size(); ++i) {
      const size_t mine = parts - 1 - i;
      if (mine < filled) {
        subsets[mine].Join(other.subsets[i]);
      } else {
        subsets.push_back(std::move(other.subsets[i]));
      }
    }
    Sort();
  }
};

// Orders partitions by spread, so that the widest is on top of the heap. No two compare equal,
// because they contain different values.
struct Later {
  size_t parts;
  bool operator()(const Partial& a, const Partial& b) const {
    const int64_t left = a.Spread(parts), right = b.Spread(parts);
    return left != right ? left < right : Larger(b.subsets.front(), a.subsets.front());
  }
};

// The remaining partitions, the one with the widest spread on top.
class Heap {
 public:
  explicit Heap(size_t parts) : later_{parts} {}

  size_t size() const { return heap_.size(); }
  void Push(Partial partial) {
    heap_.push_back(std::move(partial));
    std::push_heap(heap_.begin(), heap_.end(), later_);
  }
  Partial Pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later_);
    Partial top = std::move(heap_.back());
    heap_.pop_back();
    return top;
  }

 private:
  const Later later_;
  std::vector<Partial> heap_;
};

// Pushes initial partitions of `step` values: 1, or one value for each part.
void PushSmall(const std::vector<int64_t>& values, size_t step, Heap& heap) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return values[static_cast<size_t>(a)] < values[static_cast<size_t>(b)];
  });
  for (size_t begin = 0; begin < order.size(); begin += step) {
    Partial partial;
    for (size_t i = begin; i < begin + step; ++i) {
      partial.subsets.push_back({values[static_cast<size_t>(order[i])], {order[i]}});
    }
    partial.Sort();
    heap.Push(std::move(partial));
  }
}

}  // namespace

Lists LargestDifferencing(const std::vector<int64_t>& values, int64_t parts, bool equal_size) {
  TANDEM_CHECK(parts >= 1, "there is no part to put values into");
  const auto count = static_cast<size_t>(parts);
  TANDEM_CHECK(!equal_size || values.size() % count == 0,
               "the values do not go into parts of equal size");
  Heap heap(count);
  PushSmall(values, equal_size ? count : 1, heap);
  while (heap.size() > 1) {
    Partial widest = heap.Pop();
    Partial next = heap.Pop();
    widest.Join(next, count);
    heap.Push(std::move(widest));
  }
  Lists lists;
  if (heap.size() > 0) {
    for (Subset& subset : heap.Pop().subsets) lists.push_back(std::move(subset.items));
  }
  lists.resize(count);
  return lists;
}

}  // namespace tandem
