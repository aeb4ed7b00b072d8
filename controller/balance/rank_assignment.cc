#include "controller/balance/rank_assignment.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <utility>

#include "common/base/check.h"
#include "controller/balance/largest_differencing.h"

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

namespace {

constexpr double kTolerance = 1.05;
// Each round halves at most one part of every overloaded rank: enough to cut a group into 1/1024.
constexpr int kMaxRounds = 10;

bool ById(const SampleLength& a, const SampleLength& b) { return a.sample_id < b.sample_id; }

std::vector<Part> PartPerGroup(std::vector<SampleLength> samples) {
  std::sort(samples.begin(), samples.end(), [](const SampleLength& a, const SampleLength& b) {
    return std::pair(a.group, a.sample_id) < std::pair(b.group, b.sample_id);
  });
  std::vector<Part> parts;
  for (auto begin = samples.begin(); begin != samples.end();) {
    const auto end = std::find_if(begin, samples.end(),
                                  [&](const SampleLength& s) { return s.group != begin->group; });
    parts.push_back(MakePart({begin, end}));
    begin = end;
  }
  return parts;
}

// `parts` with the largest part of each rank over `limit` cut in two. Same parts: nothing to cut.
std::vector<Part> HalveLargest(const std::vector<Part>& parts, const Deal& deal, double limit) {
  std::set<const Part*> cut;
  for (size_t rank = 0; rank < deal.parts.size(); ++rank) {
    const Part* largest = nullptr;
    for (const Part* part : deal.parts[rank]) {
      if (part->samples.size() > 1 && (largest == nullptr || LargerPart(*part, *largest))) {
        largest = part;
      }
    }
    if (largest != nullptr && static_cast<double>(deal.load[rank]) > limit) cut.insert(largest);
  }
  std::vector<Part> result;
  for (const Part& part : parts) {
    if (!cut.contains(&part)) {
      result.push_back(part);
      continue;
    }
    const auto middle = part.samples.begin() + static_cast<int64_t>(part.samples.size()) / 2;
    result.push_back(MakePart({part.samples.begin(), middle}));
    result.push_back(MakePart({middle, part.samples.end()}));
  }
  return result;
}

std::vector<std::vector<uint64_t>> IdsOf(const Deal& deal) {
  std::vector<std::vector<uint64_t>> ids(deal.parts.size());
  for (size_t rank = 0; rank < ids.size(); ++rank) {
    for (const Part* part : deal.parts[rank]) {
      for (const SampleLength& sample : part->samples) ids[rank].push_back(sample.sample_id);
    }
    std::sort(ids[rank].begin(), ids[rank].end());
  }
  return ids;
}

std::vector<std::vector<uint64_t>> InOrder(std::vector<SampleLength> samples, int ranks) {
  std::vector<std::vector<uint64_t>> parts(static_cast<size_t>(ranks));
  std::sort(samples.begin(), samples.end(), ById);
  for (size_t i = 0; i < samples.size(); ++i) {
    parts[i * parts.size() / samples.size()].push_back(samples[i].sample_id);
  }
  return parts;
}

}  // namespace

std::vector<std::vector<uint64_t>> PartitionSamples(std::vector<SampleLength> samples,
                                                    int ranks,
                                                    Balance balance) {
  if (balance == Balance::kInOrder) return InOrder(std::move(samples), ranks);
  std::vector<Part> parts = PartPerGroup(std::move(samples));
  double even = 0;
  for (const Part& part : parts) even += static_cast<double>(part.total()) / ranks;
  const double limit = kTolerance * even;

  Deal deal = DealParts(parts, ranks, limit);
  int64_t highest = deal.highest();
  std::vector<std::vector<uint64_t>> best = IdsOf(deal);
  for (int round = 0; round<kMaxRounds&& static_cast<double>(deal.highest())> limit; ++round) {
    std::vector<Part> halved = HalveLargest(parts, deal, limit);
    if (halved.size() == parts.size()) break;
    parts = std::move(halved);
    deal = DealParts(parts, ranks, limit);
    if (deal.highest() >= highest) continue;
    highest = deal.highest();
    best = IdsOf(deal);
  }
  return best;
}

namespace {

std::vector<int64_t> SumsOfRuns(const std::vector<int64_t>& lengths, size_t run) {
  std::vector<int64_t> sums;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (i % run == 0) sums.push_back(0);
    sums.back() += lengths[i];
  }
  return sums;
}

}  // namespace

SeqlenImbalance MeasureImbalance(const std::vector<int64_t>& lengths,
                                 const std::vector<std::vector<int64_t>>& parts) {
  TANDEM_CHECK(!parts.empty(), "sequences of no part");
  SeqlenImbalance result;
  if (lengths.empty()) return result;
  const auto runs = SumsOfRuns(lengths, std::max<size_t>(lengths.size() / parts.size(), 1));
  std::vector<int64_t> balanced;
  for (const std::vector<int64_t>& part : parts) {
    balanced.push_back(0);
    for (const int64_t item : part) balanced.back() += lengths[static_cast<size_t>(item)];
  }
  result.min = *std::min_element(runs.begin(), runs.end());
  result.max = *std::max_element(runs.begin(), runs.end());
  result.balanced_min = *std::min_element(balanced.begin(), balanced.end());
  result.balanced_max = *std::max_element(balanced.begin(), balanced.end());
  result.mean = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})) /
                static_cast<double>(parts.size());
  return result;
}

}  // namespace tandem
