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

// Collects an assignment chunk by chunk and keeps the load of every rank.
class AssignmentBuilder {
 public:
  explicit AssignmentBuilder(size_t ranks)
      : assignment_{std::vector<std::vector<const SampleChunk*>>(ranks),
                    std::vector<int64_t>(ranks, 0)},
        groups_(ranks) {}

  size_t ranks() const { return groups_.size(); }
  int64_t LoadWith(size_t rank, const SampleChunk& chunk) const {
    return assignment_.load[rank] + chunk.own +
           (groups_[rank].contains(chunk.group()) ? 0 : chunk.prompt);
  }
  void Add(size_t rank, const SampleChunk& chunk) {
    assignment_.load[rank] = LoadWith(rank, chunk);
    assignment_.chunks[rank].push_back(&chunk);
    groups_[rank].insert(chunk.group());
  }
  RankAssignment Build() { return std::move(assignment_); }

 private:
  RankAssignment assignment_;
  std::vector<std::set<int64_t>> groups_;
};

RankAssignment ByDifferencing(const std::vector<SampleChunk>& chunks, int ranks) {
  std::vector<int64_t> totals;
  for (const SampleChunk& chunk : chunks) totals.push_back(chunk.total());
  const auto lists = LargestDifferencing(totals, ranks, /*equal_size=*/false);
  AssignmentBuilder builder(lists.size());
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    for (const int64_t index : lists[rank]) builder.Add(rank, chunks[static_cast<size_t>(index)]);
  }
  return builder.Build();
}

RankAssignment LongestFirst(const std::vector<SampleChunk>& chunks, int ranks) {
  std::vector<const SampleChunk*> order;
  for (const SampleChunk& chunk : chunks) order.push_back(&chunk);
  std::sort(order.begin(), order.end(),
            [](const SampleChunk* a, const SampleChunk* b) { return HeavierChunk(*a, *b); });
  AssignmentBuilder builder(static_cast<size_t>(ranks));
  for (const SampleChunk* chunk : order) {
    size_t best = 0;
    for (size_t rank = 1; rank < builder.ranks(); ++rank) {
      if (builder.LoadWith(rank, *chunk) < builder.LoadWith(best, *chunk)) best = rank;
    }
    builder.Add(best, *chunk);
  }
  return builder.Build();
}

}  // namespace

SampleChunk MakeChunk(std::vector<SampleLength> samples) {
  SampleChunk chunk{.samples = std::move(samples)};
  chunk.prompt = Workload(chunk.samples.front().prompt_tokens);
  for (const SampleLength& sample : chunk.samples) {
    chunk.own += Workload(sample.tokens) - Workload(sample.prompt_tokens);
  }
  return chunk;
}

bool HeavierChunk(const SampleChunk& a, const SampleChunk& b) {
  return a.total() != b.total() ? a.total() > b.total() : a.first_id() < b.first_id();
}

int64_t RankAssignment::highest() const { return *std::max_element(load.begin(), load.end()); }

RankAssignment AssignChunks(const std::vector<SampleChunk>& chunks, int ranks, double limit) {
  RankAssignment assignment = ByDifferencing(chunks, ranks);
  if (static_cast<double>(assignment.highest()) <= limit) return assignment;
  RankAssignment other = LongestFirst(chunks, ranks);
  return other.highest() < assignment.highest() ? other : assignment;
}

namespace {

constexpr double kTolerance = 1.05;
// Each round halves at most one chunk of every overloaded rank, so a group can be split into 1024.
constexpr int kMaxRounds = 10;

bool ById(const SampleLength& a, const SampleLength& b) { return a.sample_id < b.sample_id; }

std::vector<SampleChunk> ChunkPerGroup(std::vector<SampleLength> samples) {
  std::sort(samples.begin(), samples.end(), [](const SampleLength& a, const SampleLength& b) {
    return std::pair(a.group, a.sample_id) < std::pair(b.group, b.sample_id);
  });
  std::vector<SampleChunk> chunks;
  for (auto begin = samples.begin(); begin != samples.end();) {
    const auto end = std::find_if(begin, samples.end(),
                                  [&](const SampleLength& s) { return s.group != begin->group; });
    chunks.push_back(MakeChunk({begin, end}));
    begin = end;
  }
  return chunks;
}

// Returns `chunks` with the heaviest divisible chunk of every rank above `limit` split in two. The
// result has the size of `chunks` where no chunk could be split.
std::vector<SampleChunk> HalveLargest(const std::vector<SampleChunk>& chunks,
                                      const RankAssignment& assignment,
                                      double limit) {
  std::set<const SampleChunk*> cut;
  for (size_t rank = 0; rank < assignment.chunks.size(); ++rank) {
    const SampleChunk* largest = nullptr;
    for (const SampleChunk* chunk : assignment.chunks[rank]) {
      if (chunk->samples.size() > 1 && (largest == nullptr || HeavierChunk(*chunk, *largest))) {
        largest = chunk;
      }
    }
    if (largest != nullptr && static_cast<double>(assignment.load[rank]) > limit)
      cut.insert(largest);
  }
  std::vector<SampleChunk> result;
  for (const SampleChunk& chunk : chunks) {
    if (!cut.contains(&chunk)) {
      result.push_back(chunk);
      continue;
    }
    const auto middle = chunk.samples.begin() + static_cast<int64_t>(chunk.samples.size()) / 2;
    result.push_back(MakeChunk({chunk.samples.begin(), middle}));
    result.push_back(MakeChunk({middle, chunk.samples.end()}));
  }
  return result;
}

std::vector<std::vector<uint64_t>> SampleIds(const RankAssignment& assignment) {
  std::vector<std::vector<uint64_t>> ids(assignment.chunks.size());
  for (size_t rank = 0; rank < ids.size(); ++rank) {
    for (const SampleChunk* chunk : assignment.chunks[rank]) {
      for (const SampleLength& sample : chunk->samples) ids[rank].push_back(sample.sample_id);
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

std::vector<std::vector<uint64_t>> AssignSamplesToRanks(std::vector<SampleLength> samples,
                                                        int ranks,
                                                        Balance balance) {
  if (balance == Balance::kInOrder) return InOrder(std::move(samples), ranks);
  std::vector<SampleChunk> chunks = ChunkPerGroup(std::move(samples));
  double even = 0;
  for (const SampleChunk& chunk : chunks) even += static_cast<double>(chunk.total()) / ranks;
  const double limit = kTolerance * even;

  RankAssignment assignment = AssignChunks(chunks, ranks, limit);
  int64_t highest = assignment.highest();
  std::vector<std::vector<uint64_t>> best = SampleIds(assignment);
  for (int round = 0; round<kMaxRounds&& static_cast<double>(assignment.highest())> limit;
       ++round) {
    std::vector<SampleChunk> halved = HalveLargest(chunks, assignment, limit);
    if (halved.size() == chunks.size()) break;
    chunks = std::move(halved);
    assignment = AssignChunks(chunks, ranks, limit);
    if (assignment.highest() >= highest) continue;
    highest = assignment.highest();
    best = SampleIds(assignment);
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
