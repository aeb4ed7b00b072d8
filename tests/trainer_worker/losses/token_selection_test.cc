#include "trainer_worker/losses/token_selection.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include <catch2/catch.hpp>

#include "common/base/mutex.h"
#include "common/base/philox.h"
#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/comm/shared_memory_communicator.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using Name = std::pair<uint64_t, int64_t>;  // sample id and position

std::vector<SelectionToken> RandomTokens(size_t count, uint64_t seed) {
  std::vector<SelectionToken> tokens;
  for (size_t i = 0; i < count; ++i) {
    const float old = -3 * RandomUniform(seed, 1, i);
    tokens.push_back({.log_prob = old + 0.6f * (RandomUniform(seed, 2, i) - 0.5f),
                      .old_log_prob = old,
                      .advantage = 3 * (RandomUniform(seed, 3, i) - 0.5f),
                      .sample_id = 1000 - i / 7,
                      .position = static_cast<int64_t>(i % 7)});
  }
  return tokens;
}

std::set<Name> Names(const std::vector<SelectionToken>& tokens,
                     const std::vector<uint8_t>& selected) {
  std::set<Name> names;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (selected.at(i) != 0) names.emplace(tokens[i].sample_id, tokens[i].position);
  }
  return names;
}

std::set<Name> Alone(Selection selection,
                     const std::vector<SelectionToken>& tokens,
                     const PolicyLossOptions& options,
                     const SelectionSeed& seed = {}) {
  SoloCommunicator solo;
  const auto selected = SelectTokens(selection, tokens, options, seed, solo);
  REQUIRE(selected.ok());
  return Names(tokens, *selected);
}

// The same by `ranks` ranks, each with the tokens that `rank_of` gives it.
std::set<Name> Spread(Selection selection,
                      const std::vector<SelectionToken>& tokens,
                      const PolicyLossOptions& options,
                      int ranks,
                      const std::function<int(size_t)>& rank_of) {
  const testing::TempDir dir;
  struct {
    Mutex mutex;
    std::set<Name> names ABSL_GUARDED_BY(mutex);
  } all;
  std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
  const auto run = [&](int rank) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const auto group,
                            JoinSharedMemoryGroup({.rank = rank,
                                                   .world_size = ranks,
                                                   .rendezvous = (dir.path() / "group").string(),
                                                   .generation = 1,
                                                   .deadline = testing::kPatience}));
    std::vector<SelectionToken> mine;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (rank_of(i) == rank) mine.push_back(tokens[i]);
    }
    TANDEM_ASSIGN_OR_RETURN(const auto selected,
                            SelectTokens(selection, mine, options, {}, *group));
    const MutexLock lock(all.mutex);
    all.names.merge(Names(mine, selected));
    return absl::OkStatus();
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = run(rank); });
  }
  threads.clear();
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  const MutexLock lock(all.mutex);
  return all.names;
}

std::vector<double> Covariances(const std::vector<SelectionToken>& tokens) {
  double log_prob = 0, advantage = 0;
  for (const SelectionToken& token : tokens) {
    log_prob += token.log_prob / static_cast<double>(tokens.size());
    advantage += token.advantage / static_cast<double>(tokens.size());
  }
  std::vector<double> result;
  for (const SelectionToken& token : tokens) {
    result.push_back((token.advantage - advantage) * (token.log_prob - log_prob));
  }
  return result;
}

TEST_CASE("kl_cov selects the largest covariances, at least one token", "[losses][selection]") {
  const std::vector<SelectionToken> tokens = RandomTokens(61, 3);
  const std::vector<double> covariance = Covariances(tokens);
  std::vector<size_t> order(tokens.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return covariance[a] > covariance[b]; });
  for (const auto& [ratio, count] :
       std::map<double, size_t>{{1e-4, 1}, {0.1, 6}, {0.5, 30}, {1, 61}}) {
    std::set<Name> want;
    for (size_t i = 0; i < count; ++i) {
      want.emplace(tokens[order[i]].sample_id, tokens[order[i]].position);
    }
    REQUIRE(Alone(Selection::kKlCov, tokens, {.kl_cov_ratio = ratio}) == want);
  }
}

TEST_CASE("of equal covariances the lower sample id and position is selected",
          "[losses][selection]") {
  std::vector<SelectionToken> tokens = RandomTokens(20, 4);
  for (SelectionToken& token : tokens) token.advantage = 1.0f;  // every covariance is 0
  const std::set<Name> selected = Alone(Selection::kKlCov, tokens, {.kl_cov_ratio = 0.15});
  REQUIRE(selected == std::set<Name>{{998, 0}, {998, 1}, {998, 2}});
}

TEST_CASE("clip_cov selects between its bounds, at random, but never a clipped token",
          "[losses][selection]") {
  const std::vector<SelectionToken> tokens = RandomTokens(400, 5);
  const std::vector<double> covariance = Covariances(tokens);
  const PolicyLossOptions all = {.clip_cov_ratio = 1, .clip_cov_lb = 0.1, .clip_cov_ub = 0.4};
  std::set<Name> candidates;
  size_t clipped = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (covariance[i] <= 0.1 || covariance[i] >= 0.4) continue;
    const double ratio = std::exp(tokens[i].log_prob - tokens[i].old_log_prob);
    const bool out = tokens[i].advantage > 0 ? ratio > 1.2 : ratio < 0.8;
    clipped += out;
    if (!out) candidates.emplace(tokens[i].sample_id, tokens[i].position);
  }
  REQUIRE(clipped > 0);
  REQUIRE(candidates.size() > 20);
  REQUIRE(Alone(Selection::kClipCov, tokens, all) == candidates);

  PolicyLossOptions some = all;
  some.clip_cov_ratio = 0.02;  // 8 of 400
  const std::set<Name> first = Alone(Selection::kClipCov, tokens, some, {.seed = 1, .step = 1});
  REQUIRE(first.size() == 8);
  REQUIRE(std::includes(candidates.begin(), candidates.end(), first.begin(), first.end()));
  REQUIRE(Alone(Selection::kClipCov, tokens, some, {.seed = 1, .step = 1}) == first);
  REQUIRE(Alone(Selection::kClipCov, tokens, some, {.seed = 1, .step = 2}) != first);
  REQUIRE(Alone(Selection::kClipCov, tokens, some, {.seed = 2, .step = 1}) != first);
}

TEST_CASE("what is selected depends neither on order nor on ranks", "[losses][selection]") {
  const std::vector<SelectionToken> tokens = RandomTokens(97, 6);
  const PolicyLossOptions options = {
      .clip_cov_ratio = 0.05, .clip_cov_lb = 0.0, .kl_cov_ratio = 0.1};
  for (const Selection selection : {Selection::kClipCov, Selection::kKlCov}) {
    const std::set<Name> want = Alone(selection, tokens, options);
    REQUIRE(want.size() == (selection == Selection::kClipCov ? 4 : 9));
    std::vector<SelectionToken> reversed(tokens.rbegin(), tokens.rend());
    REQUIRE(Alone(selection, reversed, options) == want);
    REQUIRE(Spread(selection, tokens, options, 2, [](size_t i) { return i < 30 ? 0 : 1; }) == want);
    REQUIRE(Spread(selection, tokens, options, 3,
                   [](size_t i) { return static_cast<int>(i * i % 3); }) == want);
    // A rank without tokens.
    REQUIRE(Spread(selection, tokens, options, 2, [](size_t) { return 1; }) == want);
  }
}

TEST_CASE("no tokens, nothing selected", "[losses][selection]") {
  REQUIRE(Alone(Selection::kKlCov, {}, {}).empty());
  REQUIRE(Alone(Selection::kClipCov, {}, {}).empty());
}

TEST_CASE("the largest keys are found through every byte of every word", "[losses][selection]") {
  SoloCommunicator solo;
  const std::vector<SelectionKey> keys = {{7, 1, 0}, {7, 1, 2}, {uint64_t{1} << 56, 0, 0},
                                          {7, 1, 1}, {7, 0, 9}, {6, 9, 9}};
  const auto largest = [&](int64_t count) { return SelectLargest(keys, count, solo).value(); };
  REQUIRE(largest(0) == std::vector<uint8_t>{0, 0, 0, 0, 0, 0});
  REQUIRE(largest(1) == std::vector<uint8_t>{0, 0, 1, 0, 0, 0});
  REQUIRE(largest(2) == std::vector<uint8_t>{0, 1, 1, 0, 0, 0});
  REQUIRE(largest(3) == std::vector<uint8_t>{0, 1, 1, 1, 0, 0});
  REQUIRE(largest(5) == std::vector<uint8_t>{1, 1, 1, 1, 1, 0});
  REQUIRE(largest(9) == std::vector<uint8_t>{1, 1, 1, 1, 1, 1});
}

}  // namespace
}  // namespace tandem
