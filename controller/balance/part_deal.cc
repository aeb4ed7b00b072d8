#include "controller/balance/part_deal.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "controller/balance/largest_differencing.h"
#include "controller/balance/workload.h"

namespace tandem {
namespace {

// Ranks that get one part after the other.
class Dealer {
 public:
  explicit Dealer(size_t ranks)
      : deal_{std::vector<std::vector<const Part*>>(ranks), std::vector<int64_t>(ranks, 0)},
        groups_(ranks) {}

  size_t ranks() const { return groups_.size(); }
  int64_t LoadWith(size_t rank, const Part& part) const {
    return deal_.load[rank] + part.own + (groups_[rank].contains(part.group()) ? 0 : part.prompt);
  }
  void Give(size_t rank, const Part& part) {
    deal_.load[rank] = LoadWith(rank, part);
    deal_.parts[rank].push_back(&part);
    groups_[rank].insert(part.group());
  }
  Deal Take() { return std::move(deal_); }

 private:
  Deal deal_;
  std::vector<std::set<int64_t>> groups_;
};

Deal ByDifferencing(const std::vector<Part>& parts, int ranks) {
  std::vector<int64_t> totals;
  for (const Part& part : parts) totals.push_back(part.total());
  const auto lists = LargestDifferencing(totals, ranks, /*equal_size=*/false);
  Dealer dealer(lists.size());
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    for (const int64_t index : lists[rank]) dealer.Give(rank, parts[static_cast<size_t>(index)]);
  }
  return dealer.Take();
}

Deal LongestFirst(const std::vector<Part>& parts, int ranks) {
  std::vector<const Part*> order;
  for (const Part& part : parts) order.push_back(&part);
  std::sort(order.begin(), order.end(),
            [](const Part* a, const Part* b) { return LargerPart(*a, *b); });
  Dealer dealer(static_cast<size_t>(ranks));
  for (const Part* part : order) {
    size_t best = 0;
    for (size_t rank = 1; rank < dealer.ranks(); ++rank) {
      if (dealer.LoadWith(rank, *part) < dealer.LoadWith(best, *part)) best = rank;
    }
    dealer.Give(best, *part);
  }
  return dealer.Take();
}

}  // namespace

Part MakePart(std::vector<SampleLength> samples) {
  Part part{.samples = std::move(samples)};
  part.prompt = Workload(part.samples.front().prompt_tokens);
  for (const SampleLength& sample : part.samples) {
    part.own += Workload(sample.tokens) - Workload(sample.prompt_tokens);
  }
  return part;
}

bool LargerPart(const Part& a, const Part& b) {
  return a.total() != b.total() ? a.total() > b.total() : a.first_id() < b.first_id();
}

int64_t Deal::highest() const { return *std::max_element(load.begin(), load.end()); }

Deal DealParts(const std::vector<Part>& parts, int ranks, double limit) {
  Deal deal = ByDifferencing(parts, ranks);
  if (static_cast<double>(deal.highest()) <= limit) return deal;
  Deal other = LongestFirst(parts, ranks);
  return other.highest() < deal.highest() ? other : deal;
}

}  // namespace tandem
