#include "common/balance/micro_batches.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/balance/largest_differencing.h"
#include "common/balance/workload.h"
#include "common/base/round_up.h"
#include "common/base/status_macros.h"

namespace tandem {
namespace {

using Lists = std::vector<std::vector<int64_t>>;

// Neighbours that stay together.
struct Groups {
  std::vector<int64_t> tokens;
  std::vector<int64_t> work;
};

absl::StatusOr<Groups> GroupsOf(const std::vector<int64_t>& lengths,
                                const MicroBatchOptions& options) {
  const int64_t size = options.group_size;
  if (options.max_tokens < 1) {
    return InvalidArgument("a micro-batch of {} tokens holds nothing", options.max_tokens);
  }
  if (lengths.empty()) return InvalidArgument("no sequences to make micro-batches of");
  if (size < 1 || std::ssize(lengths) % size != 0) {
    return InvalidArgument("{} sequences are no whole groups of {}", lengths.size(), size);
  }
  Groups groups;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (static_cast<int64_t>(i) % size == 0) {
      groups.tokens.push_back(0);
      groups.work.push_back(0);
    }
    groups.tokens.back() += lengths[i];
    groups.work.back() += Workload(lengths[i]);
  }
  const int64_t largest = *std::max_element(groups.tokens.begin(), groups.tokens.end());
  if (largest > options.max_tokens) {
    return InvalidArgument(
        "{} sequences that stay together have {} tokens, but a micro-batch holds {}; raise "
        "actor.ppo_max_token_len_per_gpu",
        size, largest, options.max_tokens);
  }
  return groups;
}

int64_t SumOf(const std::vector<int64_t>& values, const std::vector<int64_t>& list) {
  int64_t sum = 0;
  for (const int64_t item : list) sum += values[static_cast<size_t>(item)];
  return sum;
}

absl::StatusOr<Lists> FewestWithinLimit(const Groups& groups, const MicroBatchOptions& options) {
  const int64_t total = std::accumulate(groups.tokens.begin(), groups.tokens.end(), int64_t{0});
  const int64_t needed = (total + options.max_tokens - 1) / options.max_tokens;
  const int64_t least = std::max({options.min_batches, needed, int64_t{1}});
  const int64_t multiple = std::max<int64_t>(options.multiple, 1);
  for (int64_t count = RoundUp(least, multiple);; count += multiple) {
    if (count > std::ssize(groups.tokens)) {
      return InvalidArgument(
          "{} micro-batches are wanted, but there are {} groups to put into them", count,
          groups.tokens.size());
    }
    TANDEM_ASSIGN_OR_RETURN(Lists lists, BalancedPartitions(groups.work, count, false));
    const auto fits = [&](const auto& list) {
      return SumOf(groups.tokens, list) <= options.max_tokens;
    };
    if (std::all_of(lists.begin(), lists.end(), fits)) return lists;
  }
}

// Most work in the middle: a pipeline that fills and drains waits less.
void PutSmallAtEnds(const std::vector<int64_t>& work, Lists& lists) {
  const auto key = [&](const auto& list) { return std::pair(SumOf(work, list), list.front()); };
  std::sort(lists.begin(), lists.end(),
            [&](const auto& a, const auto& b) { return key(a) > key(b); });
  Lists first, second;
  for (size_t i = 0; i < lists.size(); ++i) {
    (i % 2 == 0 ? first : second).push_back(std::move(lists[i]));
  }
  std::reverse(first.begin(), first.end());
  first.insert(first.end(), second.begin(), second.end());
  lists = std::move(first);
}

Lists MembersOf(const Lists& groups, int64_t group_size) {
  Lists members(groups.size());
  for (size_t list = 0; list < groups.size(); ++list) {
    for (const int64_t group : groups[list]) {
      for (int64_t i = 0; i < group_size; ++i) members[list].push_back(group * group_size + i);
    }
  }
  return members;
}

}  // namespace

absl::StatusOr<Lists> RearrangeMicroBatches(const std::vector<int64_t>& lengths,
                                            const MicroBatchOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const Groups groups, GroupsOf(lengths, options));
  TANDEM_ASSIGN_OR_RETURN(Lists lists, FewestWithinLimit(groups, options));
  if (options.small_ends) PutSmallAtEnds(groups.work, lists);
  return MembersOf(lists, options.group_size);
}

absl::StatusOr<std::vector<int64_t>> ReverseIndex(const Lists& lists) {
  size_t count = 0;
  for (const std::vector<int64_t>& list : lists) count += list.size();
  std::vector<int64_t> reverse(count, -1);
  int64_t place = 0;
  for (const std::vector<int64_t>& list : lists) {
    for (const int64_t item : list) {
      if (item < 0 || item >= std::ssize(reverse) || reverse[static_cast<size_t>(item)] >= 0) {
        return InvalidArgument("index {} is twice in the lists of {} elements, or outside", item,
                               count);
      }
      reverse[static_cast<size_t>(item)] = place++;
    }
  }
  return reverse;
}

}  // namespace tandem
