#include "controller/balance/partition.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "controller/balance/part_deal.h"

namespace tandem {
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

}  // namespace tandem
