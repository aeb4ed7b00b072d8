#include "common/config/unused_keys.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <google/protobuf/text_format.h>

#include "common/config/field_value.h"
#include "common/config/rollout_rules.h"
#include "common/config/schema.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// A condition that compares more than one value, or whose message says more than the value.
struct ComputedCondition {
  std::vector<std::string_view> keys;  // they have an effect only if `met`
  std::string_view switch_key;         // the key that decides it
  bool (*met)(const v1::Config&);
  std::string_view needed;       // completes "it needs"
  std::string_view except = "";  // an effect that they have in any case
};

bool OneOf(const std::string& value, std::initializer_list<std::string_view> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

const std::string& LossMode(const v1::Config& c) { return c.actor().policy_loss().loss_mode(); }

// Whether the loss is one of `names`, or one that a user added (docs/reference/algorithms.md),
// whose keys are not known here.
bool LossIs(const v1::Config& c, std::initializer_list<std::string_view> names) {
  const std::string& mode = LossMode(c);
  const bool built_in = OneOf(mode, {"vanilla", "gspo", "cispo", "sapo", "geo_mean", "gpg", "dro",
                                     "dppo_tv", "dppo_kl", "clip_cov", "kl_cov"});
  return !built_in || OneOf(mode, names);
}

const std::string& Schedule(const v1::Config& c) { return c.actor().optim().lr_scheduler_type(); }
const v1::KlCtrl& KlCtrl(const v1::Config& c) { return c.algorithm().kl_ctrl(); }

// If a round has no more groups than a step needs, and nothing else ends it, it ends when all of
// them are complete.
bool UntilGroupsCuts(const v1::Config& c) {
  const v1::Partial& partial = c.rollout().partial();
  if (partial.until_groups() == 0) return true;
  const int64_t batch = c.data().train_batch_size();
  const int64_t issued = partial.groups_per_round() > 0 ? partial.groups_per_round() : batch;
  const bool ends_otherwise = PartialCap(c) > 0 || partial.round_seconds() > 0 || partial.overlap();
  return ends_otherwise || issued > batch || partial.until_groups() < issued;
}

// Where several conditions of a key do not hold, the first one is reported.
const std::vector<ComputedCondition>& ComputedConditions() {
  static const std::vector<ComputedCondition> conditions = {
      {{"actor.clip_ratio", "actor.clip_ratio_low", "actor.clip_ratio_high"},
       "actor.policy_loss.loss_mode",
       [](const v1::Config& c) {
         return LossIs(c,
                       {"vanilla", "gspo", "cispo", "geo_mean", "dppo_tv", "dppo_kl", "clip_cov"});
       },
       "an actor.policy_loss.loss_mode that clips: vanilla, gspo, cispo, geo_mean, dppo_tv, "
       "dppo_kl or clip_cov"},
      {{"actor.clip_ratio", "actor.clip_ratio_low", "actor.clip_ratio_high", "actor.clip_ratio_c"},
       "algorithm.rollout_correction.loss_type",
       [](const v1::Config& c) {
         const v1::RolloutCorrection& correction = c.algorithm().rollout_correction();
         return !correction.bypass_mode() || correction.loss_type() != "reinforce";
       },
       "algorithm.rollout_correction.loss_type=ppo_clip: reinforce does not clip"},
      {{"actor.clip_ratio_c"},
       "actor.policy_loss.loss_mode",
       [](const v1::Config& c) {
         return LossIs(c, {"vanilla", "dppo_tv", "dppo_kl"});
       },
       "actor.policy_loss.loss_mode=vanilla, dppo_tv or dppo_kl"},
      {{"actor.tau_pos", "actor.tau_neg"},
       "actor.policy_loss.loss_mode",
       [](const v1::Config& c) { return LossIs(c, {"sapo"}); },
       "actor.policy_loss.loss_mode=sapo"},
      {{"actor.policy_loss.clip_cov_ratio", "actor.policy_loss.clip_cov_lb",
        "actor.policy_loss.clip_cov_ub"},
       "actor.policy_loss.loss_mode",
       [](const v1::Config& c) { return LossIs(c, {"clip_cov"}); },
       "actor.policy_loss.loss_mode=clip_cov"},
      {{"actor.policy_loss.kl_cov_ratio", "actor.policy_loss.ppo_kl_coef"},
       "actor.policy_loss.loss_mode",
       [](const v1::Config& c) { return LossIs(c, {"kl_cov"}); },
       "actor.policy_loss.loss_mode=kl_cov"},
      {{"actor.policy_loss.dro_beta"},
       "actor.policy_loss.loss_mode",
       [](const v1::Config& c) { return LossIs(c, {"dro"}); },
       "actor.policy_loss.loss_mode=dro"},
      {{"actor.loss_agg_mode", "actor.loss_scale_factor"},
       "actor.policy_loss.loss_mode",
       [](const v1::Config& c) {
         return LossMode(c) != "geo_mean" || c.actor().use_kl_loss() ||
                c.actor().entropy_coeff() != 0;
       },
       "another actor.policy_loss.loss_mode than geo_mean, which is a mean over samples by itself, "
       "or a KL or entropy term in addition to it"},
      {{"ref.offload"},
       "actor.use_kl_loss",
       NeedsReference,
       "a KL term: actor.use_kl_loss=true or algorithm.use_kl_in_reward=true"},
      {{"ref.offload"},
       "model.lora.rank",
       [](const v1::Config& c) { return c.model().lora().rank() == 0; },
       "model.lora.rank=0: with adapters the reference policy is the base that is trained on, "
       "without "
       "a copy that could be moved"},
      {{"algorithm.kl_ctrl.type", "algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.target_kl"},
       "algorithm.kl_ctrl.kl_coef",
       [](const v1::Config& c) {
         return KlCtrl(c).type() != "adaptive" || KlCtrl(c).kl_coef() != 0;
       },
       "another algorithm.kl_ctrl.kl_coef than 0: adaptive multiplies it, and 0 stays 0"},
      {{"algorithm.rollout_correction.rollout_is",
        "algorithm.rollout_correction.rollout_is_threshold"},
       "algorithm.rollout_correction.loss_type",
       [](const v1::Config& c) {
         const v1::RolloutCorrection& correction = c.algorithm().rollout_correction();
         return !correction.bypass_mode() || correction.loss_type() == "reinforce" ||
                correction.rollout_is() == "none";
       },
       "algorithm.rollout_correction.loss_type=reinforce or bypass_mode=false: the ratio of "
       "ppo_clip is the rollout's already",
       " but on metrics"},
      {{"reward.args"},
       "reward.function",
       [](const v1::Config& c) { return c.reward().function() != "remote"; },
       "a reward.function of Tandem's own: a service has none"},
      {{"actor.optim.lr_warmup_steps_ratio"},
       "actor.optim.lr_warmup_steps",
       [](const v1::Config& c) { return c.actor().optim().lr_warmup_steps() <= 0; },
       "actor.optim.lr_warmup_steps=0, which otherwise goes before it"},
      {{"actor.optim.total_training_steps"},
       "actor.optim.lr_scheduler_type",
       [](const v1::Config& c) {
         const v1::Optim& optim = c.actor().optim();
         return Schedule(c) != "constant" ||
                (optim.lr_warmup_steps() <= 0 && optim.lr_warmup_steps_ratio() > 0);
       },
       "actor.optim.lr_scheduler_type=cosine or wsd, or actor.optim.lr_warmup_steps_ratio; the "
       "length of the run is trainer.total_training_steps"},
      {{"rollout.partial.groups_per_round", "rollout.partial.max_versions",
        "rollout.partial.max_rounds_without_batch"},
       "rollout.partial.max_tokens_per_round",
       PartialEnabled,
       "rollout.partial.max_tokens_per_round, until_groups, round_seconds or overlap"},
      {{"rollout.partial.max_tokens_per_round"},
       "data.max_response_length",
       [](const v1::Config& c) {
         const int64_t cap = c.rollout().partial().max_tokens_per_round();
         return cap == 0 || cap < c.data().max_response_length();
       },
       "a value below data.max_response_length, which nothing is longer than",
       " but on what earlier settings left in the pool"},
      {{"algorithm.partial_rollout_max_split"},
       "algorithm.partial_rollout_max_split",
       [](const v1::Config& c) {
         return c.algorithm().partial_rollout_max_split() == 0 ||
                PartialCap(c) < c.data().max_response_length();
       },
       "2 parts or more: one is the whole response",
       " but on what earlier settings left in the pool"},
      {{"rollout.partial.until_groups"},
       "rollout.partial.groups_per_round",
       UntilGroupsCuts,
       "rollout.partial.groups_per_round above it, so that some are left to cut"},
      {{"rollout.partial.overlap"},
       "rollout.partial.max_staleness",
       [](const v1::Config& c) {
         const v1::Partial& partial = c.rollout().partial();
         return !partial.overlap() || partial.max_staleness() > 0;
       },
       "rollout.partial.max_staleness above 0: nothing may run ahead"},
      {{"data.seed"},
       "data.shuffle",
       [](const v1::Config& c) { return c.data().shuffle() || c.data().validation_shuffle(); },
       "data.shuffle=true"},
      {{"data.validation_shuffle", "data.val_max_samples", "trainer.expected_val_rise"},
       "data.val_files",
       [](const v1::Config& c) { return c.data().val_files_size() > 0; },
       "data.val_files"},
      {{"trainer.total_epochs"},
       "trainer.total_training_steps",
       [](const v1::Config& c) { return c.trainer().total_training_steps() == 0; },
       "trainer.total_training_steps=0, which otherwise goes before it"},
  };
  return conditions;
}

// The value as text, equal for equal values.
std::string Value(const KeySpec& spec, v1::Config& config) {
  const google::protobuf::Message& parent = *ParentMessage(spec.key, &config);
  using Printer = google::protobuf::TextFormat;
  std::string all, one;
  if (!spec.field->is_repeated()) {
    Printer::PrintFieldValueToString(parent, spec.field, -1, &all);
    return all;
  }
  const int size = parent.GetReflection()->FieldSize(parent, spec.field);
  for (int i = 0; i < size; ++i) {
    Printer::PrintFieldValueToString(parent, spec.field, i, &one);
    all += one + "\n";
  }
  return all;
}

// Whether leaving `key` out would change nothing.
bool AsIfLeftOut(const std::string& key, const v1::Config& config, ConfigOrigins origins) {
  const KeySpec& spec = *FindKey(key);
  v1::Config given = config, without = config;
  google::protobuf::Message* parent = ParentMessage(key, &without);
  parent->GetReflection()->ClearField(parent, spec.field);
  origins.erase(key);
  ResolveConfig(&without, origins);
  return Value(spec, given) == Value(spec, without);
}

// The only key that makes other keys ineffective by being given.
void NoticeClipRatio(const v1::Config& config,
                     const ConfigOrigins& origins,
                     std::vector<std::string>* notices) {
  const auto both = origins.find("actor.clip_ratio");
  const auto low = origins.find("actor.clip_ratio_low"),
             high = origins.find("actor.clip_ratio_high");
  if (both == origins.end() || low == origins.end() || high == origins.end()) return;
  const v1::Actor& actor = config.actor();
  if (actor.clip_ratio() == actor.clip_ratio_low() &&
      actor.clip_ratio() == actor.clip_ratio_high()) {
    return;
  }
  notices->push_back(
      fmt::format("{}: actor.clip_ratio has no effect: actor.clip_ratio_low ({}) and "
                  "actor.clip_ratio_high ({}) "
                  "go before it; change those, or leave them out",
                  both->second, low->second, high->second));
}

// The key has an effect, but probably not the intended one.
void NoticeSmallSplit(const v1::Config& config,
                      const ConfigOrigins& origins,
                      std::vector<std::string>* notices) {
  const auto origin = origins.find("algorithm.partial_rollout_max_split");
  const int64_t splits = config.algorithm().partial_rollout_max_split();
  const int64_t length = config.data().max_response_length();
  if (origin == origins.end() || splits < 2 || length < 2 || PartialCap(config) != 1) return;
  notices->push_back(
      fmt::format("{}: algorithm.partial_rollout_max_split={} cuts every sample after 1 token, as "
                  "data.max_response_length is {}: each round prefills prompts and prefixes again. "
                  "It says how many parts the longest response has; 2 to 4 are usual",
                  origin->second, splits, length));
}

// A scalar as a user writes it.
std::string ValueText(const KeySpec& spec, v1::Config& config) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Message& parent = *ParentMessage(spec.key, &config);
  const google::protobuf::Reflection& reflection = *parent.GetReflection();
  switch (spec.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(parent, spec.field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_INT64:
      return fmt::format("{}", reflection.GetInt64(parent, spec.field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return fmt::format("{}", reflection.GetDouble(parent, spec.field));
    default:
      return reflection.GetString(parent, spec.field);
  }
}

bool Holds(const v1::KeyCondition& condition, v1::Config& config) {
  const std::string value = ValueText(*FindKey(condition.key()), config);
  if (condition.has_above()) return std::stod(value) > condition.above();
  return std::count(condition.any_of().begin(), condition.any_of().end(), value) > 0;
}

// "model.lora.rank above 0", "reward.function=remote", "actor.optim.lr_scheduler_type=cosine or
// wsd".
std::string Describe(const v1::KeyCondition& condition) {
  if (condition.has_above()) return fmt::format("{} above {}", condition.key(), condition.above());
  std::string values = condition.any_of(0);
  for (int i = 1; i < condition.any_of_size(); ++i) {
    values += (i + 1 < condition.any_of_size() ? ", " : " or ") + condition.any_of(i);
  }
  return condition.key() + "=" + values;
}

// Collects notices of keys that were given and have no effect, at most one for each key.
class UnusedKeys {
 public:
  UnusedKeys(const v1::Config& config, const ConfigOrigins& origins)
      : config_(config), origins_(origins) {}

  bool reported(const std::string& key) const { return reported_.contains(key); }
  std::vector<std::string> TakeNotices() { return std::move(notices_); }

  // `switch_key` decides whether `key` has an effect. A key with its default value is not reported
  // if the switch was given too, because the file then only spells out what holds anyway.
  void Report(const std::string& key,
              const std::string& switch_key,
              std::string_view except,
              std::string_view needed) {
    const auto origin = origins_.find(key);
    if (origin == origins_.end() || reported_.contains(key)) return;
    reported_.insert(key);
    if (origins_.contains(switch_key) && AsIfLeftOut(key, config_, origins_)) return;
    notices_.push_back(
        fmt::format("{}: {} has no effect{}: it needs {}", origin->second, key, except, needed));
  }

 private:
  const v1::Config& config_;
  const ConfigOrigins& origins_;
  std::set<std::string, std::less<>> reported_;
  std::vector<std::string> notices_;
};

}  // namespace

std::vector<std::string> UnusedKeyNotices(const v1::Config& config, const ConfigOrigins& origins) {
  UnusedKeys unused(config, origins);
  for (const ComputedCondition& condition : ComputedConditions()) {
    if (condition.met(config)) continue;
    for (const std::string_view key : condition.keys) {
      unused.Report(std::string(key), std::string(condition.switch_key), condition.except,
                    condition.needed);
    }
  }
  v1::Config copy = config;  // ParentMessage creates messages
  for (const KeySpec& spec : ConfigSchema()) {
    for (const v1::KeyCondition& condition : spec.info.only_if()) {
      if (Holds(condition, copy)) continue;
      unused.Report(spec.key, condition.key(), "", Describe(condition));
    }
  }
  std::vector<std::string> notices = unused.TakeNotices();
  if (!unused.reported("actor.clip_ratio")) NoticeClipRatio(config, origins, &notices);
  NoticeSmallSplit(config, origins, &notices);
  return notices;
}

}  // namespace tandem
