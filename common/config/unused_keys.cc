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

struct KeyCondition {
  std::vector<std::string_view> keys;  // that have an effect only if met
  std::string_view switch_key;         // which decides it
  bool (*met)(const v1::Config&);
  std::string_view what;      // what to set, so that they have one
  std::string_view but = "";  // what they have an effect on even so
};

bool OneOf(const std::string& value, std::initializer_list<std::string_view> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

const std::string& LossMode(const v1::Config& c) { return c.actor().policy_loss().loss_mode(); }

// Whether the loss is one of `names`, or one that was added (docs/algorithms.md): which keys that
// reads is not known here.
bool LossIs(const v1::Config& c, std::initializer_list<std::string_view> names) {
  const std::string& mode = LossMode(c);
  const bool built_in = OneOf(mode, {"vanilla", "gspo", "cispo", "sapo", "geo_mean", "gpg", "dro",
                                     "dppo_tv", "dppo_kl", "clip_cov", "kl_cov"});
  return !built_in || OneOf(mode, names);
}

const std::string& Schedule(const v1::Config& c) { return c.actor().optim().lr_scheduler_type(); }
const v1::KlCtrl& KlCtrl(const v1::Config& c) { return c.algorithm().kl_ctrl(); }

// Where a round has no more groups than a step needs, and nothing else ends it, it is over when all
// of them are whole.
bool UntilGroupsCuts(const v1::Config& c) {
  const v1::Partial& partial = c.rollout().partial();
  if (partial.until_groups() == 0) return true;
  const int64_t batch = c.data().train_batch_size();
  const int64_t issued = partial.groups_per_round() > 0 ? partial.groups_per_round() : batch;
  const bool ends_otherwise = PartialCap(c) > 0 || partial.round_seconds() > 0 || partial.overlap();
  return ends_otherwise || issued > batch || partial.until_groups() < issued;
}

// Of a key that lacks several things the first is told.
const std::vector<KeyCondition>& LossNeeds() {
  static const std::vector<KeyCondition> needs = {
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
       "or a KL or entropy term beside it"},
      {{"actor.loss_scale_factor"},
       "actor.loss_agg_mode",
       [](const v1::Config& c) { return c.actor().loss_agg_mode() == "seq-mean-token-sum-norm"; },
       "actor.loss_agg_mode=seq-mean-token-sum-norm"},
      {{"actor.kl_loss_coef", "actor.kl_loss_type"},
       "actor.use_kl_loss",
       [](const v1::Config& c) { return c.actor().use_kl_loss(); },
       "actor.use_kl_loss=true"},
      {{"ref.offload"},
       "actor.use_kl_loss",
       NeedsReference,
       "a KL term: actor.use_kl_loss=true or algorithm.use_kl_in_reward=true"},
  };
  return needs;
}

const std::vector<KeyCondition>& AlgorithmNeeds() {
  static const std::vector<KeyCondition> needs = {
      {{"algorithm.kl_penalty", "algorithm.kl_ctrl.type", "algorithm.kl_ctrl.kl_coef",
        "algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.target_kl"},
       "algorithm.use_kl_in_reward",
       [](const v1::Config& c) { return c.algorithm().use_kl_in_reward(); },
       "algorithm.use_kl_in_reward=true"},
      {{"algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.target_kl"},
       "algorithm.kl_ctrl.type",
       [](const v1::Config& c) { return KlCtrl(c).type() == "adaptive"; },
       "algorithm.kl_ctrl.type=adaptive"},
      {{"algorithm.kl_ctrl.type", "algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.target_kl"},
       "algorithm.kl_ctrl.kl_coef",
       [](const v1::Config& c) {
         return KlCtrl(c).type() != "adaptive" || KlCtrl(c).kl_coef() > 0;
       },
       "algorithm.kl_ctrl.kl_coef above 0: adaptive multiplies it, and 0 stays 0"},
      {{"algorithm.norm_adv_by_std_in_grpo"},
       "algorithm.adv_estimator",
       [](const v1::Config& c) {
         return OneOf(c.algorithm().adv_estimator(),
                      {"grpo", "grpo_vectorized", "grpo_passk", "gdpo"});
       },
       "algorithm.adv_estimator=grpo, grpo_vectorized, grpo_passk or gdpo"},
      {{"algorithm.filter_groups.metric", "algorithm.filter_groups.max_num_gen_batches"},
       "algorithm.filter_groups.enable",
       [](const v1::Config& c) { return c.algorithm().filter_groups().enable(); },
       "algorithm.filter_groups.enable=true"},
      {{"algorithm.rollout_correction.rollout_is_threshold"},
       "algorithm.rollout_correction.rollout_is",
       [](const v1::Config& c) {
         return c.algorithm().rollout_correction().rollout_is() != "none";
       },
       "algorithm.rollout_correction.rollout_is=token or sequence"},
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
      {{"reward.overlong_buffer.len", "reward.overlong_buffer.penalty_factor",
        "reward.overlong_buffer.log", "reward.max_resp_len"},
       "reward.overlong_buffer.enable",
       [](const v1::Config& c) { return c.reward().overlong_buffer().enable(); },
       "reward.overlong_buffer.enable=true"},
      {{"reward.service_address", "reward.timeout_seconds", "reward.retries"},
       "reward.function",
       [](const v1::Config& c) { return c.reward().function() == "remote"; },
       "reward.function=remote"},
      {{"reward.args"},
       "reward.function",
       [](const v1::Config& c) { return c.reward().function() != "remote"; },
       "a reward.function of Tandem's own: a service has none"},
  };
  return needs;
}

const std::vector<KeyCondition>& OtherNeeds() {
  static const std::vector<KeyCondition> needs = {
      {{"model.lora.alpha", "model.lora.target_modules", "model.lora.exclude_modules",
        "model.lora.target_parameters", "model.lora.merge", "model.lora.dropout"},
       "model.lora.rank",
       [](const v1::Config& c) { return c.model().lora().rank() > 0; },
       "model.lora.rank above 0"},
      {{"actor.optim.min_lr_ratio", "actor.optim.num_cycles"},
       "actor.optim.lr_scheduler_type",
       [](const v1::Config& c) { return Schedule(c) != "constant"; },
       "actor.optim.lr_scheduler_type=cosine or wsd"},
      {{"actor.optim.stable_ratio"},
       "actor.optim.lr_scheduler_type",
       [](const v1::Config& c) { return Schedule(c) == "wsd"; },
       "actor.optim.lr_scheduler_type=wsd"},
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
      {{"rollout.partial.max_staleness"},
       "rollout.partial.overlap",
       [](const v1::Config& c) { return c.rollout().partial().overlap(); },
       "rollout.partial.overlap=true"},
      {{"rollout.val_kwargs.temperature", "rollout.val_kwargs.top_p", "rollout.val_kwargs.top_k"},
       "rollout.val_kwargs.do_sample",
       [](const v1::Config& c) { return c.rollout().val_kwargs().do_sample(); },
       "rollout.val_kwargs.do_sample=true"},
      {{"data.truncation"},
       "data.filter_overlong_prompts",
       [](const v1::Config& c) { return !c.data().filter_overlong_prompts(); },
       "data.filter_overlong_prompts=false"},
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
      {{"trainer.min_training_steps"},
       "trainer.max_seconds",
       [](const v1::Config& c) { return c.trainer().max_seconds() > 0; },
       "trainer.max_seconds above 0"},
      {{"trainer.resume_from_path"},
       "trainer.resume_mode",
       [](const v1::Config& c) { return c.trainer().resume_mode() == "resume_path"; },
       "trainer.resume_mode=resume_path"},
  };
  return needs;
}

// The value as text, equal for equal values.
std::string Value(const KeySpec& spec, v1::Config& config) {
  const google::protobuf::Message& parent = *ParentOf(spec.key, &config);
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
  google::protobuf::Message* parent = ParentOf(key, &without);
  parent->GetReflection()->ClearField(parent, spec.field);
  origins.erase(key);
  ResolveConfig(&without, origins);
  return Value(spec, given) == Value(spec, without);
}

// The one key that others make idle by being given.
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

// It has an effect, and hardly the one that was meant.
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

}  // namespace

std::vector<std::string> UnusedKeyNotices(const v1::Config& config, const ConfigOrigins& origins) {
  std::vector<std::string> notices;
  std::set<std::string, std::less<>> told;
  for (const auto* needs : {&LossNeeds(), &AlgorithmNeeds(), &OtherNeeds()}) {
    for (const KeyCondition& need : *needs) {
      if (need.met(config)) continue;
      for (const std::string_view name : need.keys) {
        const std::string key(name);
        const auto origin = origins.find(key);
        if (origin == origins.end() || told.contains(key)) continue;
        told.insert(key);
        const bool switch_given = origins.contains(std::string(need.switch_key));
        if (switch_given && AsIfLeftOut(key, config, origins)) continue;
        notices.push_back(fmt::format("{}: {} has no effect{}: it needs {}", origin->second, key,
                                      need.but, need.what));
      }
    }
  }
  if (!told.contains("actor.clip_ratio")) NoticeClipRatio(config, origins, &notices);
  NoticeSmallSplit(config, origins, &notices);
  return notices;
}

}  // namespace tandem
