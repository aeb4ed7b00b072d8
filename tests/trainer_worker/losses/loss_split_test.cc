// The loss of a mini-batch and its gradients do not depend on how its samples are split into
// micro-batches and ranks, nor on their order there.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "trainer_worker/losses/policy_loss.h"
#include "trainer_worker/losses/policy_loss_registry.h"

namespace tandem {
namespace {

constexpr const char* kModes[] = {"token-mean", "token-sum", "seq-mean-token-sum",
                                  "seq-mean-token-mean", "seq-mean-token-sum-norm"};

struct Row {
  std::vector<float> log_probs, old_log_probs, advantages, ref_log_probs, entropy, is_weights, mask;
  std::vector<uint8_t> selected;
};

std::vector<Row> RandomRows(uint64_t seed) {
  std::vector<Row> rows(11);
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto draw = [&](uint64_t kind, size_t t) {
      return RandomUniform(seed, 100 * kind + r, t);
    };
    const size_t length = RandomWords(seed, r, 999)[0] % 9;  // some have no token
    for (size_t t = 0; t < length; ++t) {
      const float log_prob = -4 * draw(1, t);
      rows[r].log_probs.push_back(log_prob);
      rows[r].old_log_probs.push_back(log_prob + draw(2, t) - 0.5f);
      rows[r].advantages.push_back(2 * draw(3, t) - 1);
      rows[r].ref_log_probs.push_back(log_prob + draw(4, t) - 0.5f);
      rows[r].entropy.push_back(3 * draw(5, t));
      rows[r].is_weights.push_back(0.5f + draw(6, t));
      rows[r].mask.push_back(draw(7, t) < 0.8f ? 1.0f : 0.0f);
      rows[r].selected.push_back(draw(8, t) < 0.3f ? 1 : 0);
    }
  }
  return rows;
}

template <typename T>
void Append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// The rows of one micro-batch, in this order.
LossTokens Pack(const std::vector<Row>& rows, const std::vector<size_t>& members, bool selects) {
  LossTokens tokens;
  tokens.num_rows = std::ssize(members);
  for (size_t i = 0; i < members.size(); ++i) {
    const Row& row = rows[members[i]];
    Append(tokens.log_probs, row.log_probs);
    Append(tokens.old_log_probs, row.old_log_probs);
    Append(tokens.advantages, row.advantages);
    Append(tokens.ref_log_probs, row.ref_log_probs);
    Append(tokens.entropy, row.entropy);
    Append(tokens.is_weights, row.is_weights);
    Append(tokens.mask, row.mask);
    if (selects) Append(tokens.selected, row.selected);
    tokens.rows.insert(tokens.rows.end(), row.log_probs.size(), static_cast<int64_t>(i));
  }
  return tokens;
}

using ByRow = std::map<size_t, std::vector<float>>;

struct Whole {
  double loss = 0, policy_loss = 0, kl_loss = 0, entropy = 0, clipped = 0;
  ByRow log_prob_gradients, entropy_gradients;
};

// Back from a micro-batch to its rows; no values, where the loss has none.
void Unpack(const std::vector<Row>& rows,
            const std::vector<size_t>& members,
            const std::vector<float>& values,
            ByRow& by_row) {
  auto from = values.begin();
  for (const size_t row : members) {
    if (values.empty()) continue;
    const auto length = std::ssize(rows[row].log_probs);
    by_row[row].assign(from, from + length);
    from += length;
  }
}

Whole RunSplit(const std::vector<Row>& rows,
               const std::vector<std::vector<size_t>>& split,
               const PolicyLossOptions& options,
               const LossScale& scale) {
  Whole whole;
  for (const std::vector<size_t>& members : split) {
    const LossTokens tokens = Pack(rows, members, SelectionOf(options) != Selection::kNone);
    if (tokens.log_probs.empty()) continue;  // as a micro-batch without scores
    const auto result = ComputePolicyLoss(tokens, options, scale);
    INFO(result.status().ToString());
    REQUIRE(result.ok());
    whole.loss += result->loss;
    whole.policy_loss += result->policy_loss;
    whole.kl_loss += result->kl_loss;
    whole.entropy += result->entropy;
    whole.clipped += result->clipped_sum;
    Unpack(rows, members, result->grad_log_probs, whole.log_prob_gradients);
    Unpack(rows, members, result->grad_entropy, whole.entropy_gradients);
  }
  return whole;
}

// Every row once, in a random order, in random pieces.
std::vector<std::vector<size_t>> RandomSplit(size_t rows, uint64_t seed) {
  std::vector<size_t> order(rows);
  for (size_t i = 0; i < rows; ++i) order[i] = i;
  for (size_t i = rows; i > 1; --i) {
    std::swap(order[i - 1], order[RandomWords(seed, 1, i)[0] % i]);
  }
  std::vector<std::vector<size_t>> split(1);
  for (const size_t row : order) {
    if (RandomWords(seed, 2, row)[0] % 3 == 0) split.emplace_back();
    split.back().push_back(row);
  }
  return split;
}

LossScale GlobalScale(const std::vector<Row>& rows, const char* mode) {
  double tokens = 0;
  for (const Row& row : rows)
    tokens += static_cast<double>(std::count(row.mask.begin(), row.mask.end(), 1.0f));
  return {.mode = mode,
          .batch_tokens = tokens,
          .batch_samples = static_cast<double>(rows.size()),
          .loss_scale_factor = 7};
}

bool Near(double a, double b) { return std::abs(a - b) <= 1e-6 * (1 + std::abs(b)); }

// Each loss with what it can have beside it, and bypass mode's, by name.
std::map<std::string, PolicyLossOptions> EveryLoss() {
  std::map<std::string, PolicyLossOptions> all;
  for (const std::string& name : PolicyLossNames()) {
    all[name].loss_mode = name;
    all[name].dro_beta = 0.3;
  }
  for (const std::string type : {"ppo_clip", "reinforce"}) {
    all["bypass " + type].bypass = {.correction = {.rollout_is = "sequence",
                                                   .rollout_rs = "token_k1,seq_mean_k2",
                                                   .rollout_rs_threshold = "0.8_1.3,0.05"},
                                    .loss_type = type};
  }
  for (auto& [name, options] : all) {
    options.use_kl_loss = true;
    options.kl_loss_coef = 0.1;
    options.kl_loss_type = "k3+";
    options.entropy_coeff = 0.02;
  }
  return all;
}

TEST_CASE("any split gives the same loss, and gradients with the same bits", "[losses][split]") {
  for (const auto& [name, options] : EveryLoss()) {
    for (const char* mode : kModes) {
      INFO(name << " " << mode);
      const std::vector<Row> rows = RandomRows(17);
      const LossScale scale = GlobalScale(rows, mode);
      const Whole want = RunSplit(rows, {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, options, scale);
      REQUIRE(want.policy_loss != 0);
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        const Whole got = RunSplit(rows, RandomSplit(rows.size(), seed), options, scale);
        REQUIRE(Near(got.loss, want.loss));
        REQUIRE(Near(got.policy_loss, want.policy_loss));
        REQUIRE(Near(got.kl_loss, want.kl_loss));
        REQUIRE(Near(got.entropy, want.entropy));
        REQUIRE(got.clipped == want.clipped);
        for (const auto& [row, gradient] : got.log_prob_gradients) {
          REQUIRE(gradient == want.log_prob_gradients.at(row));
          REQUIRE(got.entropy_gradients.at(row) == want.entropy_gradients.at(row));
        }
      }
    }
  }
}

TEST_CASE("each aggregation is its formula over the whole mini-batch", "[losses][split]") {
  const std::vector<Row> rows = RandomRows(23);
  PolicyLossOptions options;
  options.loss_mode = "gpg";
  std::map<std::string, double> want;
  double tokens = 0;
  for (const Row& row : rows) {
    double sum = 0, count = 0;
    for (size_t t = 0; t < row.mask.size(); ++t) {
      if (row.mask[t] == 0) continue;
      sum -= static_cast<double>(row.log_probs[t]) * row.advantages[t] * row.is_weights[t];
      ++count;
    }
    tokens += count;
    want["token-sum"] += sum;
    if (count > 0) want["seq-mean-token-mean"] += sum / count / 11;
  }
  want["token-mean"] = want["token-sum"] / tokens;
  want["seq-mean-token-sum"] = want["token-sum"] / 11;
  want["seq-mean-token-sum-norm"] = want["seq-mean-token-sum"] / 7;
  for (const char* mode : kModes) {
    INFO(mode);
    const Whole got = RunSplit(rows, RandomSplit(rows.size(), 3), options, GlobalScale(rows, mode));
    REQUIRE(got.policy_loss == Approx(want.at(mode)).epsilon(1e-5));
  }
}

}  // namespace
}  // namespace tandem
