#include "trainer_worker/losses/token_selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "common/base/philox.h"
#include "common/base/status.h"
#include "trainer_worker/losses/exact_sum.h"

namespace tandem {
namespace {

constexpr int kBytes = sizeof(SelectionKey);

size_t Byte(const SelectionKey& key, int index) {
  const uint64_t word = key[static_cast<size_t>(index / 8)];
  return static_cast<size_t>((word >> (8 * (7 - index % 8))) & 0xff);
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> SelectLargest(const std::vector<SelectionKey>& keys,
                                                   int64_t count,
                                                   Communicator& communicator) {
  std::vector<uint8_t> selected(keys.size(), 0);
  // Keys that agree with the border in the bytes compared so far, and are still undecided.
  std::vector<size_t> open(keys.size());
  std::iota(open.begin(), open.end(), size_t{0});
  auto missing = static_cast<double>(count);
  for (int byte = 0; byte < kBytes && missing > 0; ++byte) {
    std::array<double, 256> sizes{};
    for (const size_t i : open) ++sizes[Byte(keys[i], byte)];
    TANDEM_RETURN_IF_ERROR(communicator.AllReduceSum(sizes.data(), std::ssize(sizes)));
    int border = 255;  // buckets above it belong to the largest keys
    for (; border >= 0 && sizes[static_cast<size_t>(border)] <= missing; --border) {
      missing -= sizes[static_cast<size_t>(border)];
    }
    std::vector<size_t> rest;
    for (const size_t i : open) {
      const auto bucket = static_cast<int>(Byte(keys[i], byte));
      if (bucket > border) selected[i] = 1;
      if (bucket == border) rest.push_back(i);
    }
    if (border < 0) break;  // all keys of the round are selected
    open = std::move(rest);
  }
  return selected;
}

namespace {

// Separates these random numbers from those that draw tokens.
constexpr uint64_t kStream = 0x636c69705f636f76;

struct SelectionMoments {
  double tokens = 0, mean_log_prob = 0, mean_advantage = 0;
};

absl::StatusOr<SelectionMoments> MomentsOf(const std::vector<SelectionToken>& tokens,
                                           Communicator& communicator) {
  ExactSum log_probs, advantages;
  for (const SelectionToken& token : tokens) {
    log_probs.Add(token.log_prob);
    advantages.Add(token.advantage);
  }
  SelectionMoments moments{.tokens = static_cast<double>(tokens.size())};
  TANDEM_RETURN_IF_ERROR(communicator.AllReduceSum(&moments.tokens, 1));
  TANDEM_RETURN_IF_ERROR(
      communicator.AllReduceSum(log_probs.bins().data(), std::ssize(log_probs.bins())));
  TANDEM_RETURN_IF_ERROR(
      communicator.AllReduceSum(advantages.bins().data(), std::ssize(advantages.bins())));
  moments.mean_log_prob = log_probs.Value() / std::max(moments.tokens, 1.0);
  moments.mean_advantage = advantages.Value() / std::max(moments.tokens, 1.0);
  return moments;
}

double Covariance(const SelectionToken& token, const SelectionMoments& moments) {
  return (token.advantage - moments.mean_advantage) * (token.log_prob - moments.mean_log_prob);
}

// Maps doubles to integers of the same order.
uint64_t Ordered(double value) {
  const auto bits = std::bit_cast<uint64_t>(value + 0.0);  // maps -0 to +0
  constexpr uint64_t kSign = uint64_t{1} << 63;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

SelectionKey KeyOf(uint64_t first, const SelectionToken& token) {
  return {first, ~token.sample_id, ~static_cast<uint64_t>(token.position)};
}

// Whether the clipped side of PPO's loss is the larger one, computed as in policy/clip_cov.cc.
bool IsClipped(const SelectionToken& token, const PolicyLossOptions& options) {
  const float difference = token.log_prob - token.old_log_prob;
  const auto ratio = static_cast<float>(std::exp(static_cast<double>(difference)));
  const auto low = static_cast<float>(1 - options.clip_ratio_low);
  const auto high = static_cast<float>(1 + options.clip_ratio_high);
  return -token.advantage * std::clamp(ratio, low, high) > -token.advantage * ratio;
}

int64_t Share(double ratio, const SelectionMoments& moments) {
  return std::max<int64_t>(1, static_cast<int64_t>(ratio * moments.tokens));
}

absl::StatusOr<std::vector<uint8_t>> SelectLargestCovariances(
    const std::vector<SelectionToken>& tokens,
    const PolicyLossOptions& options,
    const SelectionMoments& moments,
    Communicator& communicator) {
  std::vector<SelectionKey> keys;
  keys.reserve(tokens.size());
  for (const SelectionToken& token : tokens) {
    keys.push_back(KeyOf(Ordered(Covariance(token, moments)), token));
  }
  return SelectLargest(keys, Share(options.kl_cov_ratio, moments), communicator);
}

absl::StatusOr<std::vector<uint8_t>> SelectBetweenBounds(const std::vector<SelectionToken>& tokens,
                                                         const PolicyLossOptions& options,
                                                         const SelectionMoments& moments,
                                                         const SelectionSeed& seed,
                                                         Communicator& communicator) {
  std::vector<size_t> candidates;
  std::vector<SelectionKey> keys;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const SelectionToken& token = tokens[i];
    const double covariance = Covariance(token, moments);
    if (!(covariance > options.clip_cov_lb && covariance < options.clip_cov_ub)) continue;
    if (IsClipped(token, options)) continue;
    const uint64_t index = (static_cast<uint64_t>(seed.step) << 32) |
                           (static_cast<uint64_t>(token.position) & 0xffffffff);
    const auto words = RandomWords(seed.seed ^ kStream, token.sample_id, index);
    candidates.push_back(i);
    keys.push_back(KeyOf((uint64_t{words[0]} << 32) | words[1], token));
  }
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<uint8_t> chosen,
      SelectLargest(keys, Share(options.clip_cov_ratio, moments), communicator));
  std::vector<uint8_t> selected(tokens.size(), 0);
  for (size_t i = 0; i < candidates.size(); ++i) selected[candidates[i]] = chosen[i];
  return selected;
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> SelectTokens(Selection selection,
                                                  const std::vector<SelectionToken>& tokens,
                                                  const PolicyLossOptions& options,
                                                  const SelectionSeed& seed,
                                                  Communicator& communicator) {
  if (selection == Selection::kNone) return std::vector<uint8_t>(tokens.size(), 0);
  TANDEM_ASSIGN_OR_RETURN(const SelectionMoments moments, MomentsOf(tokens, communicator));
  if (selection == Selection::kKlCov) {
    return SelectLargestCovariances(tokens, options, moments, communicator);
  }
  return SelectBetweenBounds(tokens, options, moments, seed, communicator);
}

}  // namespace tandem
