// Samples whose tokens several weight versions sampled: what must be exact, and what is measured.
#include <algorithm>
#include <cmath>

#include "tests/trainer_worker/trainer_ranks.h"
#include "tests/trainer_worker/trainer_rig.h"
#include "trainer_worker/forward_backward/ratio_checks.h"

namespace tandem {
namespace {

using namespace tandem::testing;

constexpr int64_t kStep = 7;  // weight version that the step began with

// A tiny model, and samples that its weights scored as version kStep.
struct Scored {
  Scored() {
    options.model_dir = (dir.path() / "model").string();
    REQUIRE(WriteTinyModel(options.model_dir).ok());
    samples = RandomSamples(6, 51);
    TrainerRanks one(1, options);
    const auto scores = one[0].session->Score(samples);
    REQUIRE(scores.ok());
    for (Sample& sample : samples) {
      sample.log_probs = sample.old_log_probs = scores->at(sample.sample_id);
      sample.versions.assign(sample.log_probs.size(), kStep);
    }
  }
  // The first `tokens` of a sample are of `version` instead, whose log-probs were `by` higher.
  void Age(size_t sample, size_t tokens, int64_t version, float by) {
    for (size_t t = 0; t < tokens; ++t) {
      samples[sample].versions[t] = version;
      samples[sample].log_probs[t] += by;
    }
  }
  MiniBatchRequest Request() const {
    MiniBatchRequest request = RequestFor(samples);
    request.first_update = true;
    request.version = request.step_version = kStep;
    return request;
  }
  double tokens() const { return static_cast<double>(TrainedTokens(samples)); }

  TempDir dir;
  TrainerRanksOptions options;
  std::vector<Sample> samples;
};

std::vector<MiniBatchReport> ReportsOf(TrainerRanks& group,
                                       const std::vector<Sample>& samples,
                                       const MiniBatchRequest& request) {
  std::vector<MiniBatchReport> reports(static_cast<size_t>(group.size()));
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(reports[static_cast<size_t>(index)],
                            rank.session->Train(request, Share(samples, index, group.size())));
    return absl::OkStatus();
  });
  return reports;
}

double K3(double moved) { return std::exp(moved) - 1 - moved; }

TEST_CASE("R2: the ratio of a token is to the log-prob of the version that sampled it",
          "[trainer][partial]") {
  Scored scored;
  std::vector<Sample>& samples = scored.samples;
  const size_t whole = samples[1].log_probs.size();
  scored.Age(0, 2, 5, 0.125f);
  scored.Age(1, whole, 6, -0.375f);  // left over as a whole
  const auto old = static_cast<double>(whole + 2);
  TrainerRanks two(2, scored.options);
  for (const bool compare : {true, false}) {
    MiniBatchRequest request = scored.Request();
    request.compare_log_probs = compare;
    const auto reports = ReportsOf(two, samples, request);
    const auto& metrics = reports[0].metrics;
    REQUIRE(reports[1].metrics == metrics);
    for (const char* name : {"min", "mean", "max"}) {
      REQUIRE(metrics.at(std::string("actor/current_ratio_") + name) == 1.0);
    }
    const double low = std::exp(-0.125), high = std::exp(0.375);
    const double ratios = 2 * low + static_cast<double>(whole) * high;
    REQUIRE(metrics.at("actor/ratio_min") == Approx(low));
    REQUIRE(metrics.at("actor/ratio_max") == Approx(high));
    REQUIRE(metrics.at("actor/ratio_mean") ==
            Approx((ratios + scored.tokens() - old) / scored.tokens()));
    REQUIRE(metrics.at("partial/stale_tokens") == old);
    REQUIRE(metrics.at("partial/stale_ratio_min") == Approx(low));
    REQUIRE(metrics.at("partial/stale_ratio_max") == Approx(high));
    REQUIRE(metrics.at("partial/stale_ratio_mean") == Approx(ratios / old));
    REQUIRE(metrics.at("partial/stale_kl") ==
            Approx((2 * K3(-0.125) + static_cast<double>(whole) * K3(0.375)) / old).epsilon(1e-4));
    // The loss by hand: the surrogate, clipped to [0.8, 1.2], of each token's own ratio.
    double loss = 0;
    for (const Sample& sample : samples) {
      for (size_t t = 0; t < sample.log_probs.size(); ++t) {
        const double ratio =
            std::exp(static_cast<double>(sample.old_log_probs[t]) - sample.log_probs[t]);
        const double advantage = sample.advantages[t];
        loss -= std::min(advantage * ratio, advantage * std::clamp(ratio, 0.8, 1.2));
      }
    }
    REQUIRE(metrics.at("actor/pg_loss") == Approx(loss / scored.tokens()).epsilon(1e-5));
    const int64_t compared = reports[0].comparison.compared + reports[1].comparison.compared;
    const int64_t identical = reports[0].comparison.identical + reports[1].comparison.identical;
    REQUIRE(static_cast<double>(compared) == (compare ? scored.tokens() - old : 0));
    REQUIRE(identical == compared);
  }
}

TEST_CASE("R2: a scoring pass compares the tokens of the step's weights, and no older ones",
          "[trainer][partial]") {
  Scored scored;
  std::vector<Sample>& samples = scored.samples;
  scored.Age(0, 2, 5, 0.125f);
  scored.Age(1, samples[1].log_probs.size(), 6, -0.375f);
  const auto old = static_cast<int64_t>(samples[1].log_probs.size() + 2);
  samples[3].log_probs[1] = std::nextafter(samples[3].log_probs[1], 0.0f);
  TrainerRanks two(2, scored.options);
  std::vector<LogProbComparison> seen(2);
  two.RunOk([&](Rank& rank, int index) -> absl::Status {
    ScoreExtras extras;
    TANDEM_RETURN_IF_ERROR(rank.session
                               ->Score(Share(samples, index, 2), LogProbPolicy::kCompared,
                                       {.compared_version = kStep}, &extras)
                               .status());
    seen[static_cast<size_t>(index)] = extras.comparison;
    return absl::OkStatus();
  });
  REQUIRE(seen[0].compared + seen[1].compared == TrainedTokens(samples) - old);
  REQUIRE(seen[0].identical == seen[0].compared);
  REQUIRE(seen[1].identical == seen[1].compared - 1);  // sample 3 is rank 1's
  REQUIRE(seen[1].mismatches.size() == 1);
  REQUIRE(seen[1].mismatches[0].sample_id == samples[3].sample_id);
  REQUIRE(seen[1].mismatches[0].position == samples[3].prompt_tokens + 1);
  // Samples without log-probs, as with rollout.calculate_log_probs=false, are not compared; some
  // without are refused.
  samples[0].log_probs.clear();
  two.Run([&](Rank& rank, int index) {
    ScoreExtras extras;
    return rank.session
        ->Score(Share(samples, index, 2), LogProbPolicy::kCompared, {.compared_version = kStep},
                &extras)
        .status();
  });
  REQUIRE(absl::IsInvalidArgument(two[0].status));
}

TEST_CASE("R2: a token of the step's weights must have a ratio of 1 beside others that need not",
          "[trainer][partial]") {
  Scored scored;
  scored.Age(0, 2, 5, 0.5f);
  TrainerRanks one(1, scored.options);
  Sample& mixed = scored.samples[0];
  REQUIRE(mixed.log_probs.size() > 2);
  mixed.log_probs[2] = std::nextafter(mixed.log_probs[2], 0.0f);
  MiniBatchRequest request = scored.Request();
  const absl::Status status = one[0].session->Train(request, scored.samples).status();
  INFO(status.ToString());
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(status.message().find("1 of ") != std::string::npos);
  REQUIRE(status.message().find(fmt::format("position {}: old", mixed.prompt_tokens + 2)) !=
          std::string::npos);
  request.compare_log_probs = true;  // the report tells it, and names none of the older ones
  const auto report = ReportsOf(one, scored.samples, request)[0];
  REQUIRE(report.comparison.identical == report.comparison.compared - 1);
  REQUIRE(report.comparison.mismatches.size() == 1);
  REQUIRE(report.comparison.mismatches[0].position == mixed.prompt_tokens + 2);
  REQUIRE(report.comparison.probabilities.tokens ==
          static_cast<double>(report.comparison.compared));
}

TEST_CASE("R2: numbers of older tokens have the same bits on any ranks and micro-batches",
          "[trainer][partial]") {
  Scored scored;
  for (size_t i = 0; i < scored.samples.size(); ++i) {
    Sample& sample = scored.samples[i];
    for (size_t t = 0; t < sample.log_probs.size() * i / 5; ++t) {
      sample.versions[t] = 3 + static_cast<int64_t>(t * 4 / sample.log_probs.size());
      sample.log_probs[t] += 2 * RandomUniform(9, sample.sample_id, t) - 1;
    }
  }
  // No loss counts these, and yet they are measured.
  scored.samples[5].mask.assign(scored.samples[5].log_probs.size(), 1.0f);
  scored.samples[5].mask[0] = 0;
  const MiniBatchRequest request = scored.Request();
  const auto numbers = [&](TrainerRanks& group) {
    auto metrics = ReportsOf(group, scored.samples, request)[0].metrics;
    std::erase_if(metrics, [](const auto& entry) {
      return !entry.first.starts_with("partial/") &&
             !entry.first.starts_with("actor/current_ratio");
    });
    return metrics;
  };
  TrainerRanks one(1, scored.options);
  const auto want = numbers(one);
  REQUIRE(want.size() == 8);
  double stale = 0;
  for (const Sample& sample : scored.samples) {
    stale += static_cast<double>(std::count_if(sample.versions.begin(), sample.versions.end(),
                                               [](int64_t version) { return version < kStep; }));
  }
  REQUIRE(want.at("partial/stale_tokens") == stale);
  scored.options.max_micro_batch_tokens = 60;
  TrainerRanks split(1, scored.options), two(2, scored.options), three(3, scored.options);
  for (TrainerRanks* group : {&split, &two, &three}) REQUIRE(numbers(*group) == want);
}

TEST_CASE("R2: recomputed log-probs have a ratio of 1 on every token, as sampled ones have theirs",
          "[trainer][partial]") {
  Scored scored;
  scored.Age(0, 2, 5, 0.125f);
  TrainerRanks one(1, scored.options);
  MiniBatchRequest request = scored.Request();
  request.recomputed_old_log_probs = true;
  request.compare_log_probs = true;
  const auto report = ReportsOf(one, scored.samples, request)[0];
  REQUIRE(report.metrics.at("actor/ratio_min") == 1.0);
  REQUIRE(report.metrics.at("actor/ratio_max") == 1.0);
  REQUIRE(report.metrics.at("partial/stale_tokens") == 2);
  REQUIRE(report.metrics.at("partial/stale_ratio_mean") == Approx(std::exp(-0.125)));
  REQUIRE(static_cast<double>(report.comparison.compared) == scored.tokens() - 2);
  REQUIRE(report.comparison.identical == report.comparison.compared);
  // A recomputed log-prob is of the step's weights, whatever sampled the token.
  scored.samples[0].old_log_probs[1] += 0.25f;
  REQUIRE(absl::IsDataLoss(one[0].session->Train(request, scored.samples).status()));
  // Without log-probs as sampled there is nothing to measure but how many there are.
  scored.samples[0].old_log_probs[1] -= 0.25f;
  for (Sample& sample : scored.samples) sample.log_probs.clear();
  request.compare_log_probs = false;
  const auto counted = ReportsOf(one, scored.samples, request)[0].metrics;
  REQUIRE(counted.at("partial/stale_tokens") == 2);
  REQUIRE_FALSE(counted.contains("partial/stale_ratio_mean"));
}

TEST_CASE("Bypass mode weighs tokens of older weights, and those of the step's by exactly 1",
          "[trainer][partial][bypass]") {
  Scored scored;
  scored.Age(0, 2, 5, -0.25f);
  TrainerRanks one(1, scored.options), weighted(1, scored.options);
  MiniBatchRequest request = scored.Request();
  request.loss.bypass = {.correction = {.rollout_is = "token", .rollout_is_threshold = "2"},
                         .loss_type = "reinforce"};
  const auto metrics = ReportsOf(one, scored.samples, request)[0].metrics;
  REQUIRE(metrics.at("rollout_corr/rollout_is_min") == 1.0);
  REQUIRE(metrics.at("rollout_corr/rollout_is_max") == Approx(std::exp(0.25)));
  REQUIRE(metrics.at("actor/current_ratio_max") == 1.0);
  REQUIRE(metrics.at("partial/stale_ratio_max") == Approx(std::exp(0.25)));
  // The same by hand: gpg with these weights.
  for (Sample& sample : scored.samples) {
    for (size_t t = 0; t < sample.log_probs.size(); ++t) {
      sample.is_weights.push_back(
          static_cast<float>(std::exp(sample.old_log_probs[t] - sample.log_probs[t])));
    }
  }
  request.loss.bypass.reset();
  request.loss.loss_mode = "gpg";
  REQUIRE(ReportsOf(weighted, scored.samples, request)[0].metrics.at("actor/pg_loss") ==
          Approx(metrics.at("actor/pg_loss")));
}

TEST_CASE("Losses that select tokens see where the policy is now on tokens of older weights",
          "[trainer][partial][selection]") {
  Scored scored;
  for (Sample& sample : scored.samples) {
    for (size_t t = 0; t < sample.advantages.size(); ++t) {
      sample.advantages[t] = 2 * RandomUniform(8, sample.sample_id, t) - 1;
    }
  }
  MiniBatchRequest request = scored.Request();
  request.loss.loss_mode = "kl_cov";
  request.loss.kl_cov_ratio = 0.2;
  TrainerRanks one(1, scored.options), two(2, scored.options), judged(1, scored.options);
  const double fresh = ReportsOf(one, scored.samples, request)[0].metrics.at("actor/pg_loss");
  for (size_t i : {0, 1, 2}) scored.Age(i, scored.samples[i].log_probs.size(), 5, 0.5f);
  const auto mixed = ReportsOf(one, scored.samples, request)[0].metrics;
  REQUIRE(mixed.at("actor/pg_loss") != Approx(fresh));
  // As if nothing were known to be fresh: one more pass, the same tokens.
  request.first_update = false;
  REQUIRE(ReportsOf(judged, scored.samples, request)[0].metrics == mixed);
  request.first_update = true;
  REQUIRE(ReportsOf(two, scored.samples, request)[0].metrics.at("actor/pg_loss") ==
          Approx(mixed.at("actor/pg_loss")).epsilon(1e-5));
}

TEST_CASE("A mini-batch of the step's weights alone says nothing of older ones",
          "[trainer][partial]") {
  Scored scored;
  TrainerRanks two(2, scored.options);
  const auto reports = ReportsOf(two, scored.samples, scored.Request());
  for (const auto& [name, value] : reports[0].metrics) {
    INFO(name);
    REQUIRE_FALSE(name.starts_with("partial/"));
    REQUIRE_FALSE(name.starts_with("actor/current_ratio"));
  }
}

TEST_CASE("Older are the tokens of weights before the step's, not before its later mini-batches",
          "[trainer][partial]") {
  TrainerRig rig(1);
  std::vector<Sample> samples = RandomSamples(3, 52);
  rig.GiveSamples(samples);
  rig.Reset(1);
  rig.TrainStep(0);  // of step 1
  const auto half = samples[1].versions.size() / 2;
  samples[0].versions.assign(samples[0].versions.size(), 1);
  samples[1].versions.assign(samples[1].versions.size(), 1);
  std::fill_n(samples[1].versions.begin(), half, 0);
  const auto stale = static_cast<double>(half + samples[2].versions.size());
  rig.GiveSamples(samples);
  for (const int64_t version : {1, 2, 3}) {
    ForwardBackwardCommand command = rig.TrainCommand(version);
    command.step = 2;
    const auto result = rig[0].trainer->ForwardBackward(command);
    REQUIRE(result.ok());
    REQUIRE(result->batch.metrics.at("partial/stale_tokens") == stale);
    REQUIRE(rig[0].trainer->OptimizerStep(version + 1).ok());
  }
  // The next step has other weights to begin with.
  ForwardBackwardCommand command = rig.TrainCommand(4);
  command.step = 3;
  const auto result = rig[0].trainer->ForwardBackward(command);
  REQUIRE(result.ok());
  REQUIRE(result->batch.metrics.at("partial/stale_tokens") ==
          static_cast<double>(TrainedTokens(samples)));
}

}  // namespace
}  // namespace tandem
