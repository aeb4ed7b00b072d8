#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/config/config.h"
#include "common/config/rollout_rules.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

class RolloutCorrectionRules {
 public:
  RolloutCorrectionRules(const v1::Config& config, ConfigProblems& problems)
      : keys_(config.algorithm().rollout_correction()),
        actor_(config.actor()),
        log_probs_(config.rollout().calculate_log_probs()),
        options_(RolloutCorrectionOf(config)),
        problems_(problems) {}

  void Check() {
    CheckAlone();
    if (keys_.bypass_mode()) {
      CheckBypass();
    } else {
      CheckRecomputed();
    }
  }

 private:
  void Require(bool ok, std::vector<std::string> names, const std::string& text) {
    for (std::string& name : names) {
      if (name.find('.') == std::string::npos) name = "algorithm.rollout_correction." + name;
    }
    problems_.Require(ok, names, "algorithm.rollout_correction: " + text);
  }

  void CheckAlone() {
    const absl::Status readable = RolloutCorrection::Create(options_).status();
    Require(readable.ok(),
            {"rollout_is", "rollout_is_threshold", "rollout_rs", "rollout_rs_threshold"},
            std::string(readable.message()));
    if (readable.ok()) CheckFresh();
    Require(options_.rollout_rs || !options_.rollout_rs_threshold, {"rollout_rs_threshold"},
            "rollout_rs_threshold without rollout_rs rejects nothing; name a criterion, such as "
            "rollout_rs=token_k1, or leave it out");
    Require(options_.rollout_is || !keys_.rollout_is_batch_normalize(),
            {"rollout_is_batch_normalize"},
            "rollout_is_batch_normalize=true without rollout_is has no weights to divide; set "
            "rollout_is to token or sequence");
    Require(log_probs_ || (!options_.enabled() && !keys_.bypass_mode()),
            {"rollout_is", "rollout_rs", "bypass_mode", "rollout.calculate_log_probs"},
            "the rollout's log-probs are one side of the comparison; set "
            "rollout.calculate_log_probs=true");
  }

  // Tokens of the weights in training have ratios of exactly 1 and remain unchanged.
  void CheckFresh() {
    const std::vector<float> log_probs = {-1.0f, -2.0f};
    const LogProbRow fresh{.policy = log_probs, .rollout = log_probs};
    absl::StatusOr<RolloutCorrection> correction = RolloutCorrection::Create(options_);
    if (!correction.ok() || !correction->Observe(fresh).ok()) return;
    const auto all_one = [](const std::vector<float>& values) {
      return std::all_of(values.begin(), values.end(), [](float value) { return value == 1.0f; });
    };
    Require(!correction->weighs() || all_one(correction->Weights(fresh)), {"rollout_is_threshold"},
            fmt::format("rollout_is_threshold={} would change the weight of fresh data, whose "
                        "ratios are exactly 1; give a bound of 1 or more, or a band around 1",
                        keys_.rollout_is_threshold()));
    Require(!correction->rejects() || all_one(correction->Mask(fresh)), {"rollout_rs_threshold"},
            fmt::format("rollout_rs_threshold={} would reject fresh data, whose ratios are exactly "
                        "1; give bounds around 1 for k1, and above 0 for k2 and k3",
                        keys_.rollout_rs_threshold()));
  }

  // Weights once per step, from log-probs that the trainers compute before the first update.
  void CheckRecomputed() {
    Require(!options_.enabled() || actor_.old_log_prob() == "recompute",
            {"rollout_is", "rollout_rs", "actor.old_log_prob"},
            "rollout_is and rollout_rs compare the trainers' log-probs with the rollout's, and "
            "actor.old_log_prob=rollout leaves only the latter; set actor.old_log_prob=recompute, "
            "or bypass_mode=true");
    Require(
        keys_.loss_type() == "ppo_clip", {"loss_type"},
        fmt::format("loss_type={} is a loss of bypass_mode; set bypass_mode=true, or choose the "
                    "loss with actor.policy_loss.loss_mode",
                    keys_.loss_type()));
  }

  void CheckBypass() {
    Require(actor_.old_log_prob() == "rollout", {"bypass_mode", "actor.old_log_prob"},
            "bypass_mode=true takes the rollout's log-probs for the old ones and never reads "
            "recomputed ones; set actor.old_log_prob=rollout, or bypass_mode=false");
    Require(!keys_.rollout_is_batch_normalize(), {"rollout_is_batch_normalize", "bypass_mode"},
            "rollout_is_batch_normalize=true needs the weights of the whole batch, and with "
            "bypass_mode=true they come one micro-batch at a time: the result would depend on the "
            "packing; set one of the two to false");
    const std::string& mode = actor_.policy_loss().loss_mode();
    Require(mode == "vanilla", {"bypass_mode", "actor.policy_loss.loss_mode"},
            fmt::format("bypass_mode=true has losses of its own (loss_type) and would put "
                        "actor.policy_loss.loss_mode={} aside; leave loss_mode out, or set "
                        "bypass_mode=false",
                        mode));
  }

  const v1::RolloutCorrection& keys_;
  const v1::Actor& actor_;
  const bool log_probs_;
  const RolloutCorrectionOptions options_;
  ConfigProblems& problems_;
};

}  // namespace

RolloutCorrectionOptions RolloutCorrectionOf(const v1::Config& config) {
  const v1::RolloutCorrection& keys = config.algorithm().rollout_correction();
  RolloutCorrectionOptions options;
  if (keys.rollout_is() != "none") options.rollout_is = keys.rollout_is();
  options.rollout_is_threshold = keys.rollout_is_threshold();
  options.rollout_is_batch_normalize = keys.rollout_is_batch_normalize();
  if (!keys.rollout_rs().empty()) options.rollout_rs = keys.rollout_rs();
  if (!keys.rollout_rs_threshold().empty()) {
    options.rollout_rs_threshold = keys.rollout_rs_threshold();
  }
  return options;
}

void CheckRolloutCorrection(const v1::Config& config, ConfigProblems& problems) {
  RolloutCorrectionRules(config, problems).Check();
}

}  // namespace tandem
