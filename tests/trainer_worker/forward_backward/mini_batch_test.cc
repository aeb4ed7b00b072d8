// The parts of a mini-batch's loss, and what it must not depend on.
#include "trainer_worker/forward_backward/mini_batch.h"

#include <algorithm>
#include <cmath>

#include "tests/fakes/guarded_backend.h"
#include "tests/support/text.h"
#include "tests/trainer_worker/trainer_ranks.h"

namespace tandem {
namespace {

using namespace tandem::testing;

std::string WriteDefault(const TempDir& dir) {
  const std::string path = (dir.path() / "model").string();
  REQUIRE(WriteTinyModel(path).ok());
  return path;
}

// Ranks whose device's memory the host may not touch, nor give a device's collectives its own.
TrainerRanksOptions Guarded(TrainerRanksOptions options) {
  options.make_backend = []() -> std::unique_ptr<Backend> {
    return std::make_unique<GuardedBackend>(MakeHostBackend());
  };
  return options;
}

// Their log-probs become those of the group's weights, moved by up to `spread` to both sides.
void ScoreBy(TrainerRanks& one, std::vector<Sample>& samples, float spread = 0) {
  const auto scores = one[0].session->Score(samples);
  REQUIRE(scores.ok());
  for (Sample& sample : samples) {
    sample.log_probs = scores->at(sample.sample_id);
    for (size_t t = 0; t < sample.log_probs.size() && spread != 0; ++t) {
      sample.log_probs[t] += spread * (2 * RandomUniform(7, sample.sample_id, t) - 1);
    }
  }
}

// The metrics of a training pass, the same on every rank but for rollout_corr/*, which the first
// has.
std::map<std::string, double> MetricsOf(TrainerRanks& group,
                                        const std::vector<Sample>& samples,
                                        const MiniBatchRequest& request) {
  std::vector<std::map<std::string, double>> metrics(static_cast<size_t>(group.size()));
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const MiniBatchReport report,
                            rank.session->Train(request, Share(samples, index, group.size())));
    metrics[static_cast<size_t>(index)] = report.metrics;
    return absl::OkStatus();
  });
  auto shared = metrics[0];
  std::erase_if(shared, [](const auto& entry) { return entry.first.starts_with("rollout_corr/"); });
  for (size_t rank = 1; rank < metrics.size(); ++rank) REQUIRE(metrics[rank] == shared);
  return metrics[0];
}

void RequireNearBatchGradients(TrainerRanks& a, TrainerRanks& b) {
  for (const std::string& name : a.TensorNames()) {
    INFO(name);
    const std::vector<float> want = a.Gradient(name), got = b.Gradient(name);
    double largest = 0, difference = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(want[i])));
      difference = std::max(difference, std::abs(static_cast<double>(want[i]) - got[i]));
    }
    REQUIRE(largest > 0);
    REQUIRE(difference <= 1e-5 * largest);
  }
}

TEST_CASE("Fresh tokens have a ratio of exactly 1, and clip nothing", "[trainer][ratio]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteDefault(dir)};
  std::vector<Sample> samples = RandomSamples(5, 31);
  TrainerRanks one(1, options), two(2, options);
  ScoreBy(one, samples);
  MiniBatchRequest request = RequestFor(samples);
  request.first_update = true;
  for (const bool recomputed : {false, true}) {
    request.recomputed_old_log_probs = recomputed;
    for (Sample& sample : samples) sample.old_log_probs = sample.log_probs;
    const auto metrics = MetricsOf(two, samples, request);
    REQUIRE(metrics.at("actor/ratio_min") == 1.0);
    REQUIRE(metrics.at("actor/ratio_mean") == 1.0);
    REQUIRE(metrics.at("actor/ratio_max") == 1.0);
    REQUIRE(metrics.at("actor/pg_clipfrac") == 0.0);
    REQUIRE(metrics.at("actor/pg_clipfrac_lower") == 0.0);
    REQUIRE(metrics.at("actor/ppo_kl") == 0.0);
  }
}

TEST_CASE("A fresh token whose ratio is not 1 stops the run, and the worst ones are named",
          "[trainer][ratio]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteDefault(dir)};
  std::vector<Sample> samples = RandomSamples(4, 32);
  TrainerRanks one(1, options), two(2, options);
  ScoreBy(one, samples);
  for (Sample& sample : samples) sample.old_log_probs = sample.log_probs;
  Sample& wrong = samples[1];
  MiniBatchRequest request = RequestFor(samples);
  request.first_update = true;
  for (const bool recomputed : {false, true}) {
    request.recomputed_old_log_probs = recomputed;
    std::vector<float>& old = recomputed ? wrong.old_log_probs : wrong.log_probs;
    const std::vector<float> right = old;
    old[0] = std::nextafter(old[0], 0.0f);
    old[1] -= 0.5f;
    two.Run([&](Rank& rank, int index) {
      return rank.session->Train(request, Share(samples, index, 2)).status();
    });
    const absl::Status& status = two[1].status;
    INFO(status.ToString());
    REQUIRE(status.code() == absl::StatusCode::kDataLoss);
    REQUIRE(Says(status, "2 of "));
    for (const char* remedy : {"tandemctl batch inspect", "tandemctl parity", "TANDEM_CPU_ISA"}) {
      REQUIRE(Says(status, remedy));
    }
    const std::string sample = fmt::format("sample {:#x}, position ", wrong.sample_id);
    const auto place = [&](int64_t response) {
      return std::string(status.message())
          .find(fmt::format("{}{}: old log-prob {:.9g}, now {:.9g}", sample,
                            wrong.prompt_tokens + response, old[static_cast<size_t>(response)],
                            right[static_cast<size_t>(response)]));
    };
    REQUIRE(place(1) != std::string::npos);
    REQUIRE(place(0) != std::string::npos);
    REQUIRE(place(1) < place(0));
    REQUIRE(two[0].status.code() == absl::StatusCode::kAborted);
    REQUIRE(Says(two[0].status, "trainer 1 failed"));
    old = right;
  }
}

TEST_CASE("Log-probs that are not what they must be come back, also from a pass that fails",
          "[trainer][ratio]") {
  const TempDir dir;
  TrainerRanks one(1, {.model_dir = WriteDefault(dir), .max_micro_batch_tokens = 60});
  std::vector<Sample> samples = RandomSamples(4, 39);
  ScoreBy(one, samples);
  const std::vector<Sample> right = samples;
  for (Sample& sample : samples) sample.old_log_probs = sample.log_probs;
  MiniBatchRequest request = RequestFor(samples);
  request.first_update = true;
  const auto train = [&](bool compare, bool recomputed, LogProbsBySample& differing) {
    request.compare_log_probs = compare;
    request.recomputed_old_log_probs = recomputed;
    return one[0].session->Train(request, samples, &differing).ok();
  };
  const auto require_right = [&](const LogProbsBySample& differing) {
    REQUIRE(differing.size() == right.size());
    for (const Sample& sample : right) {
      REQUIRE(differing.at(sample.sample_id) == sample.log_probs);
    }
  };
  LogProbsBySample nothing, of_rollout, of_ratio;
  REQUIRE(train(true, false, nothing));
  REQUIRE(nothing.empty());

  samples[1].log_probs[1] += 0.25f;
  REQUIRE(train(true, false, of_rollout));  // the report tells it
  require_right(of_rollout);
  request.tolerate_mismatch = true;
  REQUIRE(train(true, false, nothing));
  REQUIRE(nothing.empty());

  // After a scoring pass the training pass must have the same bits, unless others are allowed.
  request.log_probs_compared = true;
  REQUIRE(train(false, false, nothing));
  request.tolerate_mismatch = false;
  REQUIRE_FALSE(train(false, false, of_ratio));
  require_right(of_ratio);
  request.log_probs_compared = false;
  request.tolerate_mismatch = true;

  samples[2].old_log_probs[0] += 0.25f;
  REQUIRE_FALSE(train(false, true, of_ratio));
  require_right(of_ratio);
}

TEST_CASE("Ratios of other weights, or after a step, are measured and not judged",
          "[trainer][ratio]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteDefault(dir)};
  std::vector<Sample> samples = RandomSamples(2, 33);
  TrainerRanks one(1, options), two(2, options);
  ScoreBy(one, samples);
  for (float& value : samples[0].log_probs) value += 0.125f;
  for (float& value : samples[1].log_probs) value -= 0.25f;
  for (Sample& sample : samples) sample.versions.assign(sample.versions.size(), 4);
  MiniBatchRequest request = RequestFor(samples);
  request.version = 5;
  const double first = static_cast<double>(samples[0].log_probs.size()),
               second = static_cast<double>(samples[1].log_probs.size());
  for (const bool fresh : {true, false}) {
    request.first_update = fresh;
    const auto metrics = MetricsOf(two, samples, request);
    REQUIRE(metrics.at("actor/ratio_min") == Approx(std::exp(-0.125)));
    REQUIRE(metrics.at("actor/ratio_max") == Approx(std::exp(0.25)));
    REQUIRE(metrics.at("actor/ratio_mean") ==
            Approx((first * std::exp(-0.125) + second * std::exp(0.25)) / (first + second)));
    request.version = 4;
  }
}

TEST_CASE("Weights scale a token's loss, and a mask of 0 takes it out", "[trainer][loss]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteDefault(dir)};
  std::vector<Sample> samples = RandomSamples(4, 34);
  MiniBatchRequest request = RequestFor(samples);
  request.loss.loss_mode = "gpg";
  TrainerRanks weighted(1, options), scaled(1, options);
  std::vector<Sample> other = samples;
  samples[0].is_weights.assign(samples[0].advantages.size(), 2.0f);
  for (float& advantage : other[0].advantages) advantage *= 2;
  samples[1].mask.assign(samples[1].advantages.size(), 0.0f);
  for (float& advantage : other[1].advantages) advantage = 0;
  samples[2].mask.assign(samples[2].advantages.size(), 1.0f);
  samples[2].mask[1] = 0;
  other[2].advantages[1] = 0;
  const auto metrics = MetricsOf(weighted, samples, request);
  REQUIRE(metrics.at("actor/pg_loss") ==
          Approx(MetricsOf(scaled, other, request).at("actor/pg_loss")));
  RequireSameGradients(weighted, scaled);

  samples[0].is_weights.pop_back();
  const auto refused = weighted[0].session->Train(request, samples);
  REQUIRE(refused.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Says(refused.status(), "importance weights"));
  samples[0].is_weights.clear();
  samples[3].mask = {1};
  REQUIRE(Says(weighted[0].session->Train(request, samples).status(), "mask entries"));
}

TEST_CASE("Losses that select tokens select the same ones on any number of ranks and micro-batches",
          "[trainer][selection]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteDefault(dir)};
  std::vector<Sample> samples = RandomSamples(6, 35);
  TrainerRanks one(1, options);
  ScoreBy(one, samples, 0.1f);
  for (Sample& sample : samples) {
    for (size_t t = 0; t < sample.advantages.size(); ++t) {
      sample.advantages[t] = 2 * RandomUniform(8, sample.sample_id, t) - 1;
    }
  }
  samples[2].mask.assign(samples[2].advantages.size(), 0.0f);
  options.max_micro_batch_tokens = 60;
  TrainerRanks two(2, options), three(3, options), guarded(2, Guarded(options));
  for (const std::string loss : {"clip_cov", "kl_cov"}) {
    INFO(loss);
    MiniBatchRequest request = RequestFor(samples);
    request.loss.loss_mode = loss;
    request.loss.clip_cov_ratio = request.loss.kl_cov_ratio = 0.1;
    request.loss.clip_cov_lb = 0.01;
    request.loss.entropy_coeff = 0.01;
    const auto metrics = MetricsOf(one, samples, request);
    if (loss == "clip_cov") REQUIRE(metrics.at("actor/pg_clipfrac") > 0);
    for (TrainerRanks* many : {&two, &three, &guarded}) {
      const auto others = MetricsOf(*many, samples, request);
      REQUIRE(others.at("actor/pg_clipfrac") == metrics.at("actor/pg_clipfrac"));
      REQUIRE(others.at("actor/pg_loss") == Approx(metrics.at("actor/pg_loss")).epsilon(1e-5));
      RequireNearBatchGradients(one, *many);
    }
    RequireSameGradients(two, guarded);
  }
}

// Samples of weights a little off, whose correction has something to cut.
std::vector<Sample> StaleSamples(TrainerRanks& one, uint64_t seed) {
  std::vector<Sample> samples = RandomSamples(7, seed);
  ScoreBy(one, samples, 0.3f);
  samples[2].mask.assign(samples[2].advantages.size(), 0.0f);
  samples[4].mask.assign(samples[4].advantages.size(), 1.0f);
  samples[4].mask[1] = 0;
  return samples;
}

TEST_CASE("Bypass mode corrects the same on any number of ranks and micro-batches",
          "[trainer][bypass]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteDefault(dir)};
  TrainerRanks one(1, options);
  const std::vector<Sample> samples = StaleSamples(one, 37);
  options.max_micro_batch_tokens = 60;
  TrainerRanks split(1, options), two(2, options), three(3, options), guarded(2, Guarded(options));
  for (const std::string type : {"ppo_clip", "reinforce"}) {
    INFO(type);
    MiniBatchRequest request = RequestFor(samples);
    request.loss.bypass = {.correction = {.rollout_is = "token",
                                          .rollout_is_threshold = "1.1",
                                          .rollout_rs = "token_k1,seq_mean_k3",
                                          .rollout_rs_threshold = "0.8_1.2,0.5"},
                           .loss_type = type};
    request.loss.entropy_coeff = 0.01;
    const auto metrics = MetricsOf(one, samples, request);
    REQUIRE(metrics.at("rollout_corr/rollout_rs_masked_fraction") > 0.05);
    REQUIRE(metrics.at("rollout_corr/rollout_rs_masked_fraction") < 0.95);
    REQUIRE(metrics.at("rollout_corr/rollout_is_max") == Approx(1.1));
    // Of the tokens that are left alone.
    REQUIRE(metrics.at("actor/ratio_max") <= Approx(1 / 0.8));
    REQUIRE(metrics.at("actor/ratio_min") >= Approx(1 / 1.2));
    for (TrainerRanks* many : {&split, &two, &three, &guarded}) {
      const auto others = MetricsOf(*many, samples, request);
      for (const auto& [name, value] : metrics) {
        INFO(name);
        if (name.starts_with("rollout_corr/")) REQUIRE(others.at(name) == value);
      }
      REQUIRE(others.at("actor/pg_loss") == Approx(metrics.at("actor/pg_loss")).epsilon(1e-5));
      REQUIRE(others.at("actor/pg_clipfrac") == metrics.at("actor/pg_clipfrac"));
      RequireNearBatchGradients(one, *many);
    }
    RequireSameGradients(two, guarded);
  }
}

TEST_CASE("A mini-batch that bypass mode rejects as a whole says so, and has no ratios",
          "[trainer][bypass]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteDefault(dir)};
  TrainerRanks one(1, options), two(2, options);
  std::vector<Sample> samples = StaleSamples(one, 41);
  for (Sample& sample : samples) {
    for (float& value : sample.log_probs) value -= 3;
  }
  MiniBatchRequest request = RequestFor(samples);
  request.loss.bypass = {.correction = {.rollout_rs = "token_k1", .rollout_rs_threshold = "0.5_2"}};
  for (TrainerRanks* group : {&one, &two}) {
    const auto metrics = MetricsOf(*group, samples, request);
    REQUIRE(metrics.at("rollout_corr/rollout_rs_masked_fraction") == 1.0);
    REQUIRE(metrics.at("actor/pg_loss") == 0.0);
    for (const char* name : {"actor/ratio_min", "actor/ratio_mean", "actor/ratio_max"}) {
      REQUIRE_FALSE(metrics.contains(name));
    }
  }
}

TEST_CASE("Bypass mode's correction of fresh data is exactly nothing", "[trainer][bypass]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteDefault(dir)};
  std::vector<Sample> samples = RandomSamples(5, 38);
  TrainerRanks plain(1, options), two(2, options), same(1, options);
  ScoreBy(plain, samples);
  MiniBatchRequest request = RequestFor(samples);
  request.loss.loss_mode = "gpg";
  const auto want = MetricsOf(plain, samples, request);
  request.loss = {};
  request.loss.bypass = {.correction = {.rollout_is = "sequence",
                                        .rollout_rs = "token_k1,seq_max_k3",
                                        .rollout_rs_threshold = "1.001,0.001"},
                         .loss_type = "reinforce"};
  const auto metrics = MetricsOf(two, samples, request);
  REQUIRE(metrics.at("actor/pg_loss") == Approx(want.at("actor/pg_loss")));
  for (const char* name : {"mean", "min", "max"}) {
    REQUIRE(metrics.at(std::string("rollout_corr/rollout_is_") + name) == 1.0);
  }
  REQUIRE(metrics.at("rollout_corr/rollout_rs_masked_fraction") == 0.0);
  REQUIRE(metrics.at("rollout_corr/kl") == 0.0);
  MetricsOf(same, samples, request);
  RequireSameGradients(plain, same);
}

TEST_CASE("Fresh tokens are selected without a pass of their own, to the same bits",
          "[trainer][selection]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteDefault(dir)};
  std::vector<Sample> samples = RandomSamples(5, 36);
  TrainerRanks fresh(1, options), scored(1, options);
  ScoreBy(fresh, samples);
  MiniBatchRequest request = RequestFor(samples);
  request.loss.loss_mode = "clip_cov";
  request.loss.clip_cov_ratio = 0.2;
  request.loss.clip_cov_lb = 0;
  request.first_update = true;
  const auto metrics = MetricsOf(fresh, samples, request);
  REQUIRE(metrics.at("actor/pg_clipfrac") > 0);
  request.first_update = false;
  REQUIRE(MetricsOf(scored, samples, request) == metrics);
  RequireSameGradients(fresh, scored);
  // Other steps choose others.
  request.step = 9;
  TrainOn(scored, samples, request);
  const std::string name = fresh.TensorNames().front();
  REQUIRE(fresh.Gradient(name) != scored.Gradient(name));
}

}  // namespace
}  // namespace tandem
