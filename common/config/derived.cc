#include <algorithm>
#include <filesystem>

#include <yaml-cpp/yaml.h>

#include "common/base/check.h"
#include "common/base/local_address.h"
#include "common/config/config.h"
#include "common/config/field_value.h"
#include "common/config/schema.h"
#include "common/memory/op_sizes.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// Lists have no native default: fill those that were not given, even as an empty list.
void FillLists(v1::Config* config, const ConfigOrigins& given) {
  for (const KeySpec& spec : ConfigSchema()) {
    if (spec.info.list_default().empty() || given.contains(spec.key)) continue;
    google::protobuf::Message* parent = ParentMessage(spec.key, config);
    if (parent->GetReflection()->FieldSize(*parent, spec.field) > 0) continue;
    YAML::Node list(YAML::NodeType::Sequence);
    for (const std::string& entry : spec.info.list_default()) list.push_back(entry);
    const absl::Status set = SetValue(spec, list, parent);
    TANDEM_CHECK(set.ok(), "list_default of " + spec.key + ": " + set.ToString());
  }
}

void FillPaths(v1::Config* config) {
  v1::Trainer& trainer = *config->mutable_trainer();
  v1::Cluster& cluster = *config->mutable_cluster();
  if (cluster.run_dir().empty()) {
    const std::filesystem::path dir =
        std::filesystem::path("runs") / trainer.project_name() / trainer.experiment_name();
    cluster.set_run_dir(std::filesystem::absolute(dir).string());
  }
  if (trainer.default_local_dir().empty()) {
    trainer.set_default_local_dir(cluster.run_dir() + "/checkpoints");
  }
  if (cluster.listen().empty())
    cluster.set_listen("unix:" + cluster.run_dir() + "/controller.sock");
}

// Totals of workers that were not given, and what follows from rollouts with own devices.
void FillPlacement(v1::Config* config, const ConfigOrigins& given) {
  v1::Cluster& cluster = *config->mutable_cluster();
  const v1::Trainer& trainer = config->trainer();
  const v1::Rollout& rollout = config->rollout();
  const auto product = [](int64_t nodes, int64_t per_node) {
    return std::max<int64_t>(1, nodes) * per_node;
  };
  if (trainer.n_gpus_per_node() > 0 && !given.contains("cluster.trainers")) {
    cluster.set_trainers(product(trainer.nnodes(), trainer.n_gpus_per_node()));
  }
  if (!given.contains("cluster.rollouts")) {
    if (rollout.n_gpus_per_node() > 0) {
      cluster.set_rollouts(product(rollout.nnodes(), rollout.n_gpus_per_node()));
    } else if (cluster.hybrid_engine()) {
      cluster.set_rollouts(cluster.trainers());
    }
  }
  if (cluster.hybrid_engine()) return;
  if (rollout.free_cache_engine() == "auto") {
    config->mutable_rollout()->set_free_cache_engine("false");
  }
  if (config->weight_sync().transport() == "auto") {
    config->mutable_weight_sync()->set_transport("shm");
  }
}

}  // namespace

void ResolveConfig(v1::Config* config, const ConfigOrigins& given) {
  FillLists(config, given);
  FillPaths(config);
  FillPlacement(config, given);
  v1::Actor& actor = *config->mutable_actor();
  if (actor.ppo_mini_batch_size() == 0) {
    actor.set_ppo_mini_batch_size(config->data().train_batch_size());
  }
  if (given.contains("actor.clip_ratio")) {
    if (!given.contains("actor.clip_ratio_low")) actor.set_clip_ratio_low(actor.clip_ratio());
    if (!given.contains("actor.clip_ratio_high")) actor.set_clip_ratio_high(actor.clip_ratio());
  }
  const std::string& loss = actor.policy_loss().loss_mode();
  if ((loss == "gspo" || loss == "sapo") && !given.contains("actor.loss_agg_mode")) {
    actor.set_loss_agg_mode("seq-mean-token-mean");
  }
  if (config->reward().max_resp_len() == 0) {
    config->mutable_reward()->set_max_resp_len(config->data().max_response_length());
  }
  v1::WeightSync& sync = *config->mutable_weight_sync();
  if (sync.check() == "true") sync.set_check("first");
  if (sync.check() == "false") sync.set_check("off");
  if (config->rollout().max_model_len() == 0) {
    config->mutable_rollout()->set_max_model_len(config->data().max_prompt_length() +
                                                 config->data().max_response_length());
  }
}

v1::Config DefaultConfig() {
  v1::Config config;
  ResolveConfig(&config, {});
  return config;
}

bool SavesContent(const v1::Config& config, const std::string& content) {
  if (config.actor().checkpoint().save_lora_only()) return false;
  const auto& contents = config.actor().checkpoint().save_contents();
  return std::find(contents.begin(), contents.end(), content) != contents.end();
}

bool NeedsReference(const v1::Config& config) {
  return config.actor().use_kl_loss() || config.algorithm().use_kl_in_reward();
}

bool NeedsSumPiSquared(const v1::Config& config) {
  return config.actor().calculate_sum_pi_squared() ||
         config.algorithm().adv_estimator().ends_with("optimal_token_baseline");
}

std::string LocalDirOf(const v1::Config& config) {
  const v1::Cluster& cluster = config.cluster();
  return cluster.local_dir().empty() ? cluster.run_dir() : cluster.local_dir();
}

int64_t BucketBytes(const v1::Config& config, bool cuda) {
  constexpr int64_t kMib = int64_t{1} << 20;
  const std::string& text = config.weight_sync().bucket_mb();
  if (text == "auto") return (cuda ? 512 : 4) * kMib;
  return std::stoll(text) * kMib;  // the loader checked the pattern
}

bool SyncIsDirect(const v1::Config& config) {
  const bool shares = !SyncMayUseTcp(config) && (config.trainer().device() != "cuda" ||
                                                 config.weight_sync().transport() != "shm");
  return config.cluster().trainers() == 1 && config.model().compute_dtype() == "bfloat16" &&
         config.model().lora().rank() == 0 && shares;
}

bool SyncMayUseTcp(const v1::Config& config) {
  if (config.weight_sync().transport() == "tcp") return true;
  const Topology topology = TopologyOf(config);
  // Where other hosts reach the controller, one may have all trainers and another all rollouts.
  const bool reached = !IsLocalAddress(config.cluster().listen());
  return topology.apart && (topology.several_hosts() || reached);
}

LoraOptions LoraOptionsOf(const v1::Config& config) {
  const v1::Lora& lora = config.model().lora();
  return {.rank = lora.rank(),
          .alpha = lora.alpha(),
          .target_modules = {lora.target_modules().begin(), lora.target_modules().end()},
          .exclude_modules = {lora.exclude_modules().begin(), lora.exclude_modules().end()},
          .target_parameters = {lora.target_parameters().begin(), lora.target_parameters().end()},
          .merge = lora.merge(),
          .dropout = lora.dropout()};
}

namespace {

// A single trainer gets whole groups. Several share them so that each has about as many tokens,
// up to a twentieth more than its part (controller/balance/rank_assignment.h), and may split
// groups.
BatchLimits LimitsOf(const v1::Config& config, int64_t prompts) {
  const int64_t trainers = std::max<int64_t>(1, config.cluster().trainers());
  const int64_t samples = prompts * config.rollout().n();
  const int64_t part = (samples * 21 + 20 * trainers - 1) / (20 * trainers) + 1;
  BatchLimits limits;
  limits.micro_batch_tokens = config.actor().ppo_max_token_len_per_gpu();
  limits.samples = trainers == 1 ? samples : std::min(samples, part);
  limits.groups = trainers == 1 ? prompts : limits.samples;
  limits.prompt_tokens = config.data().max_prompt_length();
  limits.response_tokens = config.data().max_response_length();
  limits.sequence_tokens = config.rollout().max_model_len() > 0
                               ? config.rollout().max_model_len()
                               : limits.prompt_tokens + limits.response_tokens;
  return limits;
}

}  // namespace

BatchLimits TrainLimits(const v1::Config& config) {
  const int64_t step = config.data().train_batch_size(),
                mini = config.actor().ppo_mini_batch_size();
  return LimitsOf(config, mini > 0 ? std::min(mini, step) : step);
}

BatchLimits ScoreLimits(const v1::Config& config) {
  return LimitsOf(config, config.data().train_batch_size());
}

bool HasComparePass(const v1::Config& config) {
  if (!config.rollout().calculate_log_probs()) return false;
  if (config.trainer().off_policy_steps() > 0) return true;
  const int64_t mini = config.actor().ppo_mini_batch_size();
  const bool in_part = mini > 0 && mini < config.data().train_batch_size();
  return in_part && config.actor().compare_all_log_probs() &&
         config.actor().old_log_prob() != "recompute";
}

int64_t ProbeTokens(const v1::Config& config) {
  return std::min(config.rollout().max_model_len(), config.actor().ppo_max_token_len_per_gpu());
}

BatchLimits ProbeLimits(const v1::Config& config) {
  const std::vector<int64_t> sequences = ProbeSequences(ProbeTokens(config));
  BatchLimits limits;
  limits.micro_batch_tokens = config.actor().ppo_max_token_len_per_gpu();
  limits.samples = limits.groups =
      std::ssize(sequences) * TopologyOf(config).MostRolloutsOfATrainer();
  limits.sequence_tokens = sequences.back();  // the longest
  limits.response_tokens = std::min(kProbeResponseTokens, sequences.front() - 1);
  limits.prompt_tokens = limits.sequence_tokens - limits.response_tokens;
  return limits;
}

}  // namespace tandem
