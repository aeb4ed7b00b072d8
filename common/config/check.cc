#include "common/config/check.h"

#include <algorithm>
#include <filesystem>

#include <absl/strings/numbers.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/local_address.h"
#include "common/base/status.h"
#include "common/config/field_value.h"
#include "common/config/loaded_config.h"
#include "common/config/rollout_rules.h"
#include "common/config/schema.h"
#include "common/types/sample.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

void CheckRequired(const v1::Config& config, ConfigProblems& problems) {
  v1::Config copy = config;
  for (const KeySpec& spec : ConfigSchema()) {
    if (!spec.info.required() || spec.key.find('[') != std::string::npos) continue;
    const google::protobuf::Message* parent = ParentMessage(spec.key, &copy);
    const google::protobuf::Reflection& r = *parent->GetReflection();
    const bool given = spec.field->is_repeated() ? r.FieldSize(*parent, spec.field) > 0
                                                 : !r.GetString(*parent, spec.field).empty();
    problems.Require(given, {spec.key},
                     fmt::format("{} is required: {}", spec.key, spec.info.doc()));
  }
}

// A list with an empty name, as --set data.train_files= gives.
void CheckFileNames(const v1::Data& data, ConfigProblems& problems) {
  const auto check = [&](const std::string& key, const auto& names) {
    const bool named = std::none_of(names.begin(), names.end(),
                                    [](const std::string& name) { return name.empty(); });
    problems.Require(named, {key}, key + " holds an empty file name; name the file");
  };
  check("data.train_files", data.train_files());
  check("data.val_files", data.val_files());
}

void CheckLengths(const v1::Config& c, ConfigProblems& problems) {
  const int64_t longest = c.data().max_prompt_length() + c.data().max_response_length();
  problems.Require(c.rollout().max_model_len() >= longest,
                   {"rollout.max_model_len", "data.max_prompt_length", "data.max_response_length"},
                   fmt::format("rollout.max_model_len is {}, less than data.max_prompt_length + "
                               "data.max_response_length = {}; set it to 0 or raise it",
                               c.rollout().max_model_len(), longest));
  problems.Require(
      c.actor().ppo_max_token_len_per_gpu() >= longest, {"actor.ppo_max_token_len_per_gpu"},
      fmt::format("actor.ppo_max_token_len_per_gpu is {}: a micro-batch could not hold one sample "
                  "of data.max_prompt_length + data.max_response_length = {} tokens; raise it",
                  c.actor().ppo_max_token_len_per_gpu(), longest));
  const int64_t batch = c.data().train_batch_size(), mini = c.actor().ppo_mini_batch_size();
  problems.Require(mini > 0 && mini <= batch && batch % mini == 0,
                   {"actor.ppo_mini_batch_size", "data.train_batch_size"},
                   fmt::format("actor.ppo_mini_batch_size {} does not divide "
                               "data.train_batch_size {}",
                               mini, batch));
}

void CheckSampling(const v1::Config& c, ConfigProblems& problems) {
  const v1::Rollout& r = c.rollout();
  problems.Require(r.top_k() != 0 && r.val_kwargs().top_k() != 0,
                   {"rollout.top_k", "rollout.val_kwargs.top_k"},
                   fmt::format("rollout.top_k is {} and rollout.val_kwargs.top_k is {}: 0 tokens "
                               "leave nothing to draw; -1 keeps all",
                               r.top_k(), r.val_kwargs().top_k()));
  problems.Require(
      r.temperature() >= kMinTemperature &&
          (r.val_kwargs().temperature() == 0 || r.val_kwargs().temperature() >= kMinTemperature),
      {"rollout.temperature", "rollout.val_kwargs.temperature"},
      fmt::format("rollout.temperature is {} and rollout.val_kwargs.temperature is {}: it must be "
                  "at least {}, or, in validation, 0 for greedy",
                  r.temperature(), r.val_kwargs().temperature(), kMinTemperature));
  problems.Require(
      (r.top_p() >= 1 && r.top_k() <= 0) || r.allow_off_support(),
      {"rollout.top_p", "rollout.top_k"},
      "rollout.top_p or rollout.top_k filters tokens, so samples are off-support: set "
      "rollout.top_p=1 and rollout.top_k=-1, or allow it with rollout.allow_off_support=true");
  problems.Require(c.actor().old_log_prob() != "rollout" || r.calculate_log_probs(),
                   {"actor.old_log_prob", "rollout.calculate_log_probs"},
                   "actor.old_log_prob=rollout needs rollout.calculate_log_probs=true; or set "
                   "actor.old_log_prob=recompute");
  problems.Require(c.actor().old_log_prob() == "recompute" || !NeedsSumPiSquared(c),
                   {"actor.old_log_prob", "algorithm.adv_estimator"},
                   "sums of squared probabilities, which the optimal token baseline and "
                   "actor.calculate_sum_pi_squared need, are made in the pass of "
                   "actor.old_log_prob=recompute: set it");
}

void CheckFilterGroups(const v1::Config& c, ConfigProblems& problems) {
  const v1::FilterGroups& filter = c.algorithm().filter_groups();
  if (!filter.enable()) return;
  problems.Require(c.rollout().n() > 1, {"rollout.n", "algorithm.filter_groups.enable"},
                   "algorithm.filter_groups.enable=true drops groups whose samples are all equal, "
                   "and with rollout.n=1 all are; raise rollout.n, or set it to false");
  problems.Require(!filter.metric().empty(), {"algorithm.filter_groups.metric"},
                   "algorithm.filter_groups.metric is empty: name a key of the reward, such as "
                   "score or seq_reward");
  problems.Require(
      filter.metric() != "seq_final_reward" || !c.algorithm().use_kl_in_reward(),
      {"algorithm.filter_groups.metric", "algorithm.use_kl_in_reward"},
      "algorithm.filter_groups.metric=seq_final_reward needs algorithm.use_kl_in_reward=false: the "
      "KL penalty is known only when no further group can be generated; set it to seq_reward");
}

// verl checks neither key of a controller that is fixed or not used.
void CheckKlControl(const v1::Algorithm& algorithm, ConfigProblems& problems) {
  const v1::KlCtrl& control = algorithm.kl_ctrl();
  if (!algorithm.use_kl_in_reward() || control.type() != "adaptive") return;
  problems.Require(
      control.horizon() > 0, {"algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.type"},
      fmt::format("algorithm.kl_ctrl.horizon is {}, and algorithm.kl_ctrl.type=adaptive divides by "
                  "it: set it above 0, or type=fixed",
                  control.horizon()));
  problems.Require(
      control.target_kl() != 0, {"algorithm.kl_ctrl.target_kl", "algorithm.kl_ctrl.type"},
      "algorithm.kl_ctrl.target_kl is 0, and algorithm.kl_ctrl.type=adaptive divides the KL by it: "
      "set the KL per token that you accept, or type=fixed");
}

void CheckTraining(const v1::Config& c, ConfigProblems& problems) {
  const v1::Optim& optim = c.actor().optim();
  const bool betas = optim.betas_size() == 2 && optim.betas(0) < 1 && optim.betas(1) < 1;
  problems.Require(betas, {"actor.optim.betas"},
                   "actor.optim.betas are two numbers below 1, such as [0.9, 0.999]");
  problems.Require(
      c.trainer().resume_mode() != "resume_path" || !c.trainer().resume_from_path().empty(),
      {"trainer.resume_mode"},
      "trainer.resume_mode=resume_path needs trainer.resume_from_path, a checkpoint directory");
  problems.Require(c.trainer().test_freq() <= 0 || c.data().val_files_size() > 0,
                   {"trainer.test_freq"},
                   "trainer.test_freq asks for validation: give data.val_files");
}

void CheckLoss(const v1::Actor& a, ConfigProblems& problems) {
  const v1::PolicyLoss& loss = a.policy_loss();
  const std::string& mode = loss.loss_mode();
  problems.Require(
      mode != "sapo" || a.loss_agg_mode() == "seq-mean-token-mean",
      {"actor.loss_agg_mode", "actor.policy_loss.loss_mode"},
      fmt::format(
          "actor.loss_agg_mode is {}, but sapo is a mean over samples of the means of their "
          "tokens; set it to seq-mean-token-mean or leave it out",
          a.loss_agg_mode()));
  problems.Require(mode != "dro" || loss.dro_beta() > 0,
                   {"actor.policy_loss.loss_mode", "actor.policy_loss.dro_beta"},
                   "actor.policy_loss.loss_mode=dro needs actor.policy_loss.dro_beta above 0, the "
                   "weight of its penalty on the log-ratio");
  problems.Require(
      mode != "clip_cov" || loss.clip_cov_lb() < loss.clip_cov_ub(),
      {"actor.policy_loss.clip_cov_lb", "actor.policy_loss.clip_cov_ub"},
      fmt::format("actor.policy_loss.clip_cov_lb is {} and actor.policy_loss.clip_cov_ub is {}: no "
                  "covariance is between them; raise the upper one",
                  loss.clip_cov_lb(), loss.clip_cov_ub()));
}

void CheckDevice(const v1::Config& config, ConfigProblems& problems) {
  const bool cuda = config.trainer().device() == "cuda";
  problems.Require(!cuda || config.model().compute_dtype() != "float32",
                   {"trainer.device", "model.compute_dtype"},
                   "trainer.device=cuda computes in bfloat16 alone, and model.compute_dtype is "
                   "float32; set it to bfloat16, or trainer.device=cpu");
  problems.Require(cuda || config.weight_sync().transport() != "ipc", {"weight_sync.transport"},
                   "weight_sync.transport=ipc: CUDA IPC needs CUDA devices, and the workers run on "
                   "cpu; set it to auto, shm or tcp");
}

void CheckWeightSync(const v1::WeightSync& sync, ConfigProblems& problems) {
  problems.Require(
      !sync.check_only() || sync.check() != "off", {"weight_sync.check_only", "weight_sync.check"},
      "weight_sync.check_only=true has nothing to check: weight_sync.check is off; set it "
      "to first");
}

void CheckOffload(const v1::Config& c, ConfigProblems& problems) {
  problems.Require(
      c.model().compute_dtype() != "float32" || !c.actor().fsdp_config().param_offload(),
      {"actor.fsdp_config.param_offload", "model.compute_dtype"},
      "actor.fsdp_config.param_offload=true needs model.compute_dtype=bfloat16: with float32 the "
      "masters are what the layers compute with");
}

void CheckListen(const std::string& listen, ConfigProblems& problems) {
  if (listen.empty() || listen.rfind("unix:", 0) == 0) return;
  const size_t colon = listen.rfind(':');
  int port = -1;
  const bool readable = colon != std::string::npos && colon > 0 &&
                        absl::SimpleAtoi(listen.substr(colon + 1), &port) && port >= 0 &&
                        port <= 65535;
  problems.Require(readable, {"cluster.listen"},
                   fmt::format("cluster.listen={} is neither unix:/path nor host:port with a port "
                               "from 0 to 65535",
                               listen));
}

void CheckCluster(const v1::Cluster& c, ConfigProblems& problems) {
  const int files = !c.tls().cert().empty() + !c.tls().key().empty() + !c.tls().ca().empty();
  problems.Require(files == 0 || files == 3,
                   {"cluster.tls.cert", "cluster.tls.key", "cluster.tls.ca"},
                   "cluster.tls.cert, cluster.tls.key and cluster.tls.ca come together");
  problems.Require(files == 3 || IsLocalAddress(c.listen()), {"cluster.listen"},
                   fmt::format("cluster.listen={} is reachable from other hosts and needs "
                               "cluster.tls; or listen on a unix socket or on 127.0.0.1",
                               c.listen()));
  CheckListen(c.listen(), problems);
  problems.Require(c.heartbeat_timeout_seconds() >= 2 * c.heartbeat_seconds(),
                   {"cluster.heartbeat_timeout_seconds", "cluster.heartbeat_seconds"},
                   fmt::format("cluster.heartbeat_timeout_seconds {} must be at least twice "
                               "cluster.heartbeat_seconds {}",
                               c.heartbeat_timeout_seconds(), c.heartbeat_seconds()));
  // sun_path holds 107 characters; the longest name in the directory is a worker's socket.
  constexpr size_t kLongestRunDir = 80;
  problems.Require(c.run_dir().size() <= kLongestRunDir, {"cluster.run_dir"},
                   fmt::format("cluster.run_dir {} is {} characters long: sockets in it allow at "
                               "most {}; choose a shorter one, such as /tmp/run",
                               c.run_dir(), c.run_dir().size(), kLongestRunDir));
}

void CheckFiles(const v1::Config& c, ConfigProblems& problems) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string& model = c.model().path();
  problems.Require(
      fs::is_regular_file(fs::path(model) / "config.json", error), {"model.path"},
      fmt::format("model.path {} is not a model directory: it has no config.json", model));
  const auto check = [&](const std::string& key, const std::string& path) {
    problems.Require(path.empty() || fs::is_regular_file(path, error), {key},
                     fmt::format("{}: {} {}", key, path,
                                 fs::exists(path, error) ? "is not a file" : "does not exist"));
  };
  for (const std::string& path : c.data().train_files()) check("data.train_files", path);
  for (const std::string& path : c.data().val_files()) check("data.val_files", path);
  check("cluster.tls.cert", c.cluster().tls().cert());
  check("cluster.tls.key", c.cluster().tls().key());
  check("cluster.tls.ca", c.cluster().tls().ca());
  if (c.trainer().resume_mode() == "resume_path") {
    const std::string& from = c.trainer().resume_from_path();
    problems.Require(from.empty() || fs::is_directory(from, error), {"trainer.resume_from_path"},
                     fmt::format("trainer.resume_from_path {} is not a directory", from));
  }
}

}  // namespace

void ConfigProblems::Require(bool ok,
                             const std::vector<std::string>& keys,
                             const std::string& text) {
  if (ok) return;
  std::vector<std::string> places;
  for (const std::string& key : keys) {
    const auto origin = origins_.find(key);
    if (origin != origins_.end()) places.push_back(key + " at " + origin->second);
  }
  problems_.push_back(places.empty() ? text
                                     : fmt::format("{} ({})", text, fmt::join(places, ", ")));
}

void ConfigProblems::Notice(const std::string& key, const std::string& text) {
  const auto origin = origins_.find(key);
  if (origin != origins_.end()) notices_.push_back(origin->second + ": " + text);
}

absl::Status ConfigProblems::status() const {
  if (problems_.empty()) return absl::OkStatus();
  return InvalidArgument("{}", fmt::join(problems_, "\n"));
}

absl::Status CheckConfigValues(LoadedConfig& loaded, std::span<const ConfigCheck> more) {
  const v1::Config& config = loaded.config;
  ConfigProblems problems(loaded.origins);
  CheckRequired(config, problems);
  CheckFileNames(config.data(), problems);
  CheckLengths(config, problems);
  CheckSampling(config, problems);
  CheckFilterGroups(config, problems);
  CheckKlControl(config.algorithm(), problems);
  CheckTraining(config, problems);
  CheckLoss(config.actor(), problems);
  CheckDevice(config, problems);
  CheckWeightSync(config.weight_sync(), problems);
  CheckOffload(config, problems);
  CheckRolloutCorrection(config, problems);
  CheckLora(config, problems);
  CheckPartialRollout(config, problems);
  CheckOneStepOff(config, problems);
  CheckCluster(config.cluster(), problems);
  CheckPlacement(config, problems);
  if (config.trainer().save_freq() < 0) {
    problems.Notice(
        "trainer.save_freq",
        "trainer.save_freq is below 0: nothing is saved before the end, so the death of "
        "a trainer costs all steps; 0 saves about every ten minutes");
  }
  for (const ConfigCheck check : more) check(config, problems);
  loaded.notices.insert(loaded.notices.end(), problems.notices().begin(), problems.notices().end());
  return problems.status();
}

absl::Status CheckConfig(LoadedConfig& loaded, std::span<const ConfigCheck> more) {
  TANDEM_RETURN_IF_ERROR(CheckConfigValues(loaded, more));
  ConfigProblems problems(loaded.origins);
  CheckFiles(loaded.config, problems);
  const absl::Status files = problems.status();
  return files.ok() ? files
                    : MakeStatus(absl::StatusCode::kNotFound, "{}", std::string(files.message()));
}

}  // namespace tandem
