#include "controller/assembly/run_options.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/config/rollout_rules.h"
#include "common/process/files/run_token.h"
#include "common/process/process_identity.h"
#include "common/types/sample.h"
#include "controller/algorithm/advantage_estimator.h"
#include "controller/plan/disk_plan.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

SamplingParams TrainSampling(const v1::Config& config, const std::vector<int32_t>& eos_ids) {
  const v1::Rollout& rollout = config.rollout();
  return {.temperature = static_cast<float>(rollout.temperature()),
          .top_p = static_cast<float>(rollout.top_p()),
          .top_k = rollout.top_k(),
          .max_tokens = config.data().max_response_length(),
          .seed = static_cast<uint64_t>(rollout.seed()),
          .stop_token_ids = eos_ids,
          .stop = {rollout.stop().begin(), rollout.stop().end()},
          .ignore_eos = rollout.ignore_eos()};
}

SamplingParams ValidationSampling(const v1::Config& config, const std::vector<int32_t>& eos_ids) {
  const v1::SamplingKwargs& kwargs = config.rollout().val_kwargs();
  SamplingParams params = TrainSampling(config, eos_ids);
  params.temperature = kwargs.do_sample() ? static_cast<float>(kwargs.temperature()) : 0.0f;
  params.top_p = static_cast<float>(kwargs.top_p());
  params.top_k = kwargs.top_k();
  return params;
}

// With partial rollout, predicted savings are not reported: its rounds show the real ones. With
// trainer.off_policy_steps nobody sees the samples of a batch arrive.
TailOptions MakeTailOptions(const v1::Config& config) {
  const v1::Partial& partial = config.rollout().partial();
  TailOptions options{.slots = config.rollout().max_num_seqs() * config.cluster().rollouts(),
                      .max_versions = partial.max_versions()};
  if (TrainsOlderTokens(config)) return options;
  const int64_t longest = config.data().max_response_length();
  for (const int64_t split : {2, 4}) {
    options.caps.push_back(
        {.name = fmt::format("split_{}", split), .tokens = (longest + split - 1) / split});
  }
  return options;
}

}  // namespace

absl::StatusOr<TrainOptions> CheckedTrainOptions(const v1::Config& config,
                                                 const RunInputs& inputs) {
  TrainOptions train =
      MakeTrainOptions(config, inputs.tokenizer->eos_token_ids(), inputs.prompts->size());
  TANDEM_RETURN_IF_ERROR(CheckEpochs(config, train.total_steps, inputs.prompts->size()));
  return train;
}

TrainOptions MakeTrainOptions(const v1::Config& config,
                              const std::vector<int32_t>& eos_ids,
                              int64_t train_rows) {
  const v1::Actor& actor = config.actor();
  const v1::Algorithm& algorithm = config.algorithm();
  TrainOptions options;
  options.total_steps = PlannedSteps(config, train_rows);
  options.limit = {.time = absl::Seconds(config.trainer().max_seconds()),
                   .fewest = std::max<int64_t>(1, config.trainer().min_training_steps())};
  options.save_freq = config.trainer().save_freq();
  options.test_freq = config.trainer().test_freq();
  options.save_batch_freq = config.trainer().save_batch_freq();
  options.val_before_train = config.trainer().val_before_train();
  options.run_dir = config.cluster().run_dir();
  options.local_dir = LocalDirOf(config);
  options.model_path = config.model().path();
  options.config_yaml = ConfigToYaml(config);
  options.save_moments = SavesContent(config, "optimizer");
  options.register_timeout = absl::Seconds(config.cluster().register_timeout_seconds());
  options.heartbeat_timeout = absl::Seconds(config.cluster().heartbeat_timeout_seconds());

  options.train_batch_size = config.data().train_batch_size();
  options.samples_per_prompt = config.rollout().n();
  options.sampling = TrainSampling(config, eos_ids);
  options.max_prompt_tokens = config.data().max_prompt_length();
  options.max_model_len = config.rollout().max_model_len();
  options.partial = MakePartialOptions(config);
  options.tail = MakeTailOptions(config);
  options.probe = config.weight_sync().probe();
  options.validation_samples = config.rollout().val_kwargs().n();
  options.validation_sampling = ValidationSampling(config, eos_ids);

  options.mini_batch_prompts =
      actor.ppo_mini_batch_size() > 0 ? actor.ppo_mini_batch_size() : options.train_batch_size;
  options.epochs = actor.ppo_epochs();
  options.shuffle = actor.shuffle();
  options.shuffle_seed = static_cast<uint64_t>(config.trainer().seed());
  options.balance = config.trainer().balance_batch() ? Balance::kByLength : Balance::kInOrder;
  options.recompute_old_log_probs = actor.old_log_prob() == "recompute";
  options.need_reference = NeedsReference(config);
  options.compare_log_probs = config.rollout().calculate_log_probs();
  options.compare_all_log_probs = actor.compare_all_log_probs();
  options.max_skipped_steps = actor.max_skipped_steps();

  options.filter_groups = {.enable = algorithm.filter_groups().enable(),
                           .metric = algorithm.filter_groups().metric(),
                           .max_batches = algorithm.filter_groups().max_num_gen_batches()};
  options.adv_estimator = algorithm.adv_estimator();
  const auto estimator = FindAdvantageEstimator(algorithm.adv_estimator());
  options.greedy_baselines = estimator.ok() && estimator->needs.baseline;
  options.advantage = {.by_std = algorithm.norm_adv_by_std_in_grpo(),
                       .gamma = algorithm.gamma(),
                       .component_weights = {algorithm.gdpo_reward_weights().begin(),
                                             algorithm.gdpo_reward_weights().end()}};
  options.gdpo_reward_keys = {algorithm.gdpo_reward_keys().begin(),
                              algorithm.gdpo_reward_keys().end()};
  options.kl_in_reward = algorithm.use_kl_in_reward();
  options.kl_coef = algorithm.kl_ctrl().kl_coef();
  options.kl_control = {.adaptive = algorithm.kl_ctrl().type() == "adaptive",
                        .target = algorithm.kl_ctrl().target_kl(),
                        .horizon = algorithm.kl_ctrl().horizon()};
  options.kl_penalty = algorithm.kl_penalty();
  options.correction = RolloutCorrectionOf(config);
  return options;
}

v1::Config ConfigForWorkers(v1::Config config, const TrainOptions& options) {
  v1::Optim& optim = *config.mutable_actor()->mutable_optim();
  if (optim.total_training_steps() > 0) return config;
  const int64_t mini_batches =
      (options.train_batch_size + options.mini_batch_prompts - 1) / options.mini_batch_prompts;
  // Multiplied as doubles, because the product may exceed an int64_t.
  constexpr double kMost = 1e15;
  const double steps = static_cast<double>(options.total_steps) *
                       static_cast<double>(options.epochs) * static_cast<double>(mini_batches);
  optim.set_total_training_steps(static_cast<int64_t>(std::min(kMost, steps)));
  return config;
}

RpcSecurity MakeRpcSecurity(const v1::Config& config) {
  const v1::Tls& tls = config.cluster().tls();
  return {.cert = tls.cert(),
          .key = tls.key(),
          .ca = tls.ca(),
          .token_file = RunTokenPath(config.cluster().run_dir())};
}

absl::Status CheckEpochs(const v1::Config& config, int64_t total_steps, int64_t train_rows) {
  const int64_t steps_per_epoch =
      std::max<int64_t>(1, train_rows / config.data().train_batch_size());
  const int64_t epochs = (total_steps + steps_per_epoch - 1) / steps_per_epoch;
  constexpr auto kMost = static_cast<int64_t>(kTrainEpochs);
  if (epochs <= kMost) return absl::OkStatus();
  return InvalidArgument(
      "{} steps of {} prompts pass {} times over the {} training prompts, and sample ids "
      "distinguish at most {} passes: give more data, or make trainer.total_training_steps at most "
      "{}",
      total_steps, config.data().train_batch_size(), epochs, train_rows, kMost,
      kMost * steps_per_epoch);
}

RegistryOptions MakeRegistryOptions(const v1::Config& config,
                                    const std::string& tokenizer_digest,
                                    const BuildInfo& build,
                                    const HostId& host) {
  return {.topology = TopologyOf(config),
          .any_host = config.cluster().elastic(),
          .heartbeat_timeout = absl::Seconds(config.cluster().heartbeat_timeout_seconds()),
          .progress_limit = absl::Seconds(config.cluster().progress_timeout_seconds() +
                                          config.cluster().heartbeat_timeout_seconds()),
          .register_timeout = absl::Seconds(config.cluster().register_timeout_seconds()),
          .controller_lost = absl::Seconds(config.cluster().controller_lost_seconds()),
          .tokenizer_digest = tokenizer_digest,
          .build = BuildText(build),
          .build_id = BuildId(build),
          .allow_other_build = config.cluster().allow_other_build(),
          .host = host,
          .process_start = ProcessStart,
          .own_process_start = OwnProcessStart()};
}

AgentRegistryOptions MakeAgentOptions(const v1::Config& config, const BuildInfo& build) {
  const v1::Cluster& cluster = config.cluster();
  return {.topology = TopologyOf(config),
          .device = config.trainer().device() == "cuda" ? "cuda" : "cpu",
          .heartbeat_timeout = absl::Seconds(cluster.heartbeat_timeout_seconds()),
          .elastic = cluster.elastic(),
          .spare_hosts = static_cast<int>(cluster.spare_hosts()),
          .min_rollouts = static_cast<int>(cluster.min_rollouts()),
          // A GPU's memory is planned for the workers that it has.
          .double_up = config.trainer().device() != "cuda",
          .join_time = absl::Seconds(cluster.register_timeout_seconds()) / 2,
          .build = BuildText(build),
          .build_id = BuildId(build),
          .allow_other_build = cluster.allow_other_build(),
          .run_dir = cluster.run_dir(),
          .limits = {.heartbeat = absl::Seconds(cluster.heartbeat_seconds()),
                     .controller_lost = absl::Seconds(cluster.controller_lost_seconds()),
                     .max_restarts = static_cast<int>(cluster.max_restarts()),
                     .restart_window = absl::Seconds(cluster.restart_window_seconds()),
                     .log_max_bytes = cluster.log_max_mb() << 20,
                     .log_files_to_keep = cluster.log_files_to_keep()}};
}

ParityProbeOptions MakeProbeOptions(const v1::Config& config, int64_t vocab_limit) {
  return {.topology = TopologyOf(config),
          .vocab_limit = vocab_limit,
          .temperature = static_cast<float>(config.rollout().temperature()),
          .max_tokens = ProbeTokens(config)};
}

SleepMode ChooseSleepMode(const MemoryPlan& plan) {
  if (plan.sleep_level == 0) return SleepMode::kDrainOnly;
  return plan.sleep_level == 2 ? SleepMode::kLevel2 : SleepMode::kLevel1;
}

CheckPolicy MakeCheckPolicy(const v1::WeightSync& sync) {
  using When = CheckPolicy::When;
  constexpr std::string_view kEvery = "every ";
  const std::string_view text = sync.check();
  if (text == "off") return {.when = When::kOff};
  if (text == "always") return {.when = When::kAlways};
  if (!text.starts_with(kEvery)) return {.when = When::kFirst};
  CheckPolicy policy{.when = When::kEvery};
  // The pattern of the key guarantees digits.
  std::from_chars(text.data() + kEvery.size(), text.data() + text.size(), policy.every);
  return policy;
}

std::unique_ptr<WeightCheckFiles> MakeWeightCheckFiles(const v1::Config& config) {
  const v1::Model& model = config.model();
  CheckFilesOptions options{.model_dir = model.path(),
                            .exact_export = model.compute_dtype() != "float32"};
  if (model.lora().rank() == 0) return MakeFullCheckFiles(std::move(options));
  return MakeAdapterCheckFiles(std::move(options), model.lora().merge(),
                               model.lora().adapter_path());
}

ScrambleMode MakeScrambleMode(const v1::WeightSync& sync) {
  if (sync.scramble() == "off") return ScrambleMode::kOff;
  return sync.scramble() == "always" ? ScrambleMode::kAlways : ScrambleMode::kFirst;
}

}  // namespace tandem
