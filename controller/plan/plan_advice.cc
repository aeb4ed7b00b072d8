#include "controller/plan/plan_advice.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "controller/plan/plan_input.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

constexpr int kMaxRounds = 16;

struct Change {
  std::string setting;
  std::function<void(v1::Config&)> apply;
  bool devices = false;  // needs more devices
};

struct Helpful {
  PlanAdvice advice;
  v1::Config then;
  bool devices = false;
};

MemoryPlan PlanOf(const ModelSpec& spec, const v1::Config& config, int64_t device_bytes) {
  return PlanMemory(spec, MakeMemoryPlanInput(spec, config, device_bytes));
}

void AddOffload(const v1::Config& config, std::vector<Change>& changes) {
  const v1::FsdpConfig& fsdp = config.actor().fsdp_config();
  const bool lora = config.model().lora().rank() > 0;  // then only adapters have masters
  if (!lora && !fsdp.param_offload() && config.model().compute_dtype() != "float32") {
    changes.push_back({"actor.fsdp_config.param_offload=true", [](v1::Config& c) {
                         c.mutable_actor()->mutable_fsdp_config()->set_param_offload(true);
                       }});
  }
  if (!fsdp.optimizer_offload()) {
    changes.push_back({"actor.fsdp_config.optimizer_offload=true", [](v1::Config& c) {
                         c.mutable_actor()->mutable_fsdp_config()->set_optimizer_offload(true);
                       }});
  }
  if (!lora && NeedsReference(config) && !config.ref().offload()) {
    changes.push_back(
        {"ref.offload=true", [](v1::Config& c) { c.mutable_ref()->set_offload(true); }});
  }
  if (config.cluster().trainers() > 1 && fsdp.reshard_after_forward() != "true") {
    changes.push_back({"actor.fsdp_config.reshard_after_forward=true", [](v1::Config& c) {
                         c.mutable_actor()->mutable_fsdp_config()->set_reshard_after_forward(
                             "true");
                       }});
  }
}

void AddSleep(const v1::Config& config, std::vector<Change>& changes) {
  if (!config.cluster().hybrid_engine()) return;  // nobody else needs a rollout's device
  if (config.rollout().free_cache_engine() != "true") {
    changes.push_back({"rollout.free_cache_engine=true",
                       [](v1::Config& c) { c.mutable_rollout()->set_free_cache_engine("true"); }});
  }
  if (config.rollout().sleep_level() != 2) {
    changes.push_back(
        {"rollout.sleep_level=2", [](v1::Config& c) { c.mutable_rollout()->set_sleep_level(2); }});
  }
}

// Raises the utilization to what a KV pool needs, or lowers it by the excess of the peak.
void AddUtilization(const v1::Config& config,
                    const MemoryPlan& plan,
                    std::vector<Change>& changes) {
  const double now = config.rollout().gpu_memory_utilization();
  double then = plan.least_utilization;
  if (plan.problem.empty()) {
    const int64_t excess = std::max<int64_t>(0, plan.peak_bytes() - plan.device_bytes);
    const double share = static_cast<double>(excess) / static_cast<double>(plan.device_bytes);
    then = std::max(then, std::floor(100 * (now - share)) / 100);
    if (then >= now) return;
  }
  if (then > 1) return;
  changes.push_back(
      {fmt::format("rollout.gpu_memory_utilization={:g}", then),
       [then](v1::Config& c) { c.mutable_rollout()->set_gpu_memory_utilization(then); }});
}

void AddSizes(const v1::Config& config, std::vector<Change>& all) {
  const int64_t sequences = config.rollout().max_num_seqs() / 2;
  if (sequences > 0) {
    all.push_back({fmt::format("rollout.max_num_seqs={}", sequences), [sequences](v1::Config& c) {
                     c.mutable_rollout()->set_max_num_seqs(sequences);
                   }});
  }
  const int64_t batched = std::max<int64_t>(2048, config.rollout().max_num_seqs());
  if (batched < config.rollout().max_num_batched_tokens()) {
    all.push_back(
        {fmt::format("rollout.max_num_batched_tokens={}", batched),
         [batched](v1::Config& c) { c.mutable_rollout()->set_max_num_batched_tokens(batched); }});
  }
  const int64_t tokens =
      std::max(config.actor().ppo_max_token_len_per_gpu() / 2, config.rollout().max_model_len());
  if (tokens < config.actor().ppo_max_token_len_per_gpu()) {
    all.push_back(
        {fmt::format("actor.ppo_max_token_len_per_gpu={}", tokens),
         [tokens](v1::Config& c) { c.mutable_actor()->set_ppo_max_token_len_per_gpu(tokens); }});
  }
  if (config.model().enable_gradient_checkpointing() != "true") {
    all.push_back({"model.enable_gradient_checkpointing=true", [](v1::Config& c) {
                     c.mutable_model()->set_enable_gradient_checkpointing("true");
                   }});
  }
  constexpr int64_t kSmallBucket = 64;
  if (BucketBytes(config, PlansForGpu(config)) > kSmallBucket << 20) {
    all.push_back({fmt::format("weight_sync.bucket_mb={}", kSmallBucket), [](v1::Config& c) {
                     c.mutable_weight_sync()->set_bucket_mb(std::to_string(kSmallBucket));
                   }});
  }
}

// Halves the rank and keeps alpha / rank, because learning rates are chosen for that ratio.
void AddRank(const v1::Config& config, std::vector<Change>& changes) {
  const v1::Lora& lora = config.model().lora();
  const int64_t rank = lora.rank() / 2;
  // The rank of initial adapters cannot be changed.
  if (rank == 0 || lora.rank() % 2 != 0 || !lora.adapter_path().empty()) return;
  const double alpha = lora.alpha() / 2;
  changes.push_back({fmt::format("model.lora.rank={} model.lora.alpha={:g}", rank, alpha),
                     [rank, alpha](v1::Config& c) {
                       c.mutable_model()->mutable_lora()->set_rank(rank);
                       c.mutable_model()->mutable_lora()->set_alpha(alpha);
                     }});
}

void AddDevices(const v1::Config& config, std::vector<Change>& changes) {
  constexpr int64_t kMostTrainers = 4096;  // the upper bound of cluster.trainers
  const int64_t trainers = 2 * std::max<int64_t>(1, config.cluster().trainers());
  if (trainers > kMostTrainers) return;
  // Each number as the user gives it: one that contradicts another is refused.
  const bool pairs = config.cluster().hybrid_engine();
  const bool trainers_by_node = config.trainer().n_gpus_per_node() > 0;
  const bool rollouts_by_node = pairs && config.rollout().n_gpus_per_node() > 0;
  std::string setting = fmt::format("cluster.trainers={}", trainers);
  if (trainers_by_node) setting += fmt::format(" trainer.n_gpus_per_node={}", trainers);
  if (pairs) setting += fmt::format(" cluster.rollouts={}", trainers);
  if (rollouts_by_node) setting += fmt::format(" rollout.n_gpus_per_node={}", trainers);
  changes.push_back({setting + " (with a device each)",
                     [=](v1::Config& c) {
                       c.mutable_cluster()->set_trainers(trainers);
                       if (trainers_by_node) c.mutable_trainer()->set_n_gpus_per_node(trainers);
                       if (pairs) c.mutable_cluster()->set_rollouts(trainers);
                       if (rollouts_by_node) c.mutable_rollout()->set_n_gpus_per_node(trainers);
                     },
                     /*devices=*/true});
}

std::vector<Change> ChangesOf(const v1::Config& config, const MemoryPlan& plan, PlanTarget target) {
  std::vector<Change> changes;
  AddUtilization(config, plan, changes);
  AddSleep(config, changes);
  AddOffload(config, changes);
  AddSizes(config, changes);
  AddRank(config, changes);
  if (target == PlanTarget::kGpu) AddDevices(config, changes);
  return changes;
}

// Changes that lower the peak or make room for a KV pool, and do not take an existing pool's room.
std::vector<Helpful> HelpfulOf(const ModelSpec& spec,
                               const v1::Config& config,
                               const MemoryPlan& plan,
                               PlanTarget target) {
  std::vector<Helpful> helpful;
  for (const Change& change : ChangesOf(config, plan, target)) {
    v1::Config candidate = config;
    change.apply(candidate);
    const MemoryPlan then = PlanOf(spec, candidate, plan.device_bytes);
    const int64_t saved = plan.peak_bytes() - then.peak_bytes();
    const bool pool = !plan.problem.empty() && then.problem.empty();
    const bool worse = plan.problem.empty() && !then.problem.empty();
    if (worse || (saved <= 0 && !pool)) continue;
    helpful.push_back({{change.setting, saved, pool, then.fits()}, candidate, change.devices});
  }
  std::stable_sort(helpful.begin(), helpful.end(), [](const Helpful& a, const Helpful& b) {
    if (a.advice.pool != b.advice.pool) return a.advice.pool;
    return a.devices != b.devices ? b.devices : a.advice.saved_bytes > b.advice.saved_bytes;
  });
  return helpful;
}

std::string KeyOf(const PlanAdvice& advice) {
  return advice.setting.substr(0, advice.setting.find('='));
}

// Appends a change. If its key was changed before, only the last value is kept, with both savings.
void Append(PlanAdvice advice, std::vector<PlanAdvice>& together) {
  const auto same = std::find_if(together.begin(), together.end(), [&](const PlanAdvice& earlier) {
    return KeyOf(earlier) == KeyOf(advice);
  });
  if (same != together.end()) {
    advice.saved_bytes += same->saved_bytes;
    advice.pool = advice.pool || same->pool;
    together.erase(same);
  }
  together.push_back(std::move(advice));
}

}  // namespace

PlanAdvices AdviseOnMemory(const ModelSpec& spec,
                           const v1::Config& config,
                           int64_t device_bytes,
                           PlanTarget target) {
  PlanAdvices advices;
  v1::Config changed = config;
  MemoryPlan plan = PlanOf(spec, config, device_bytes);
  bool one = false;
  // Each round applies the most useful of the remaining changes.
  for (int round = 0; round < kMaxRounds && !plan.fits(); ++round) {
    const std::vector<Helpful> helpful = HelpfulOf(spec, changed, plan, target);
    if (helpful.empty()) break;
    for (size_t i = 0; round == 0 && i < helpful.size(); ++i) {
      advices.alone.push_back(helpful[i].advice);
      one = one || helpful[i].advice.enough;
    }
    Append(helpful.front().advice, advices.together);
    changed = helpful.front().then;
    plan = PlanOf(spec, changed, device_bytes);
  }
  advices.least_bytes = plan.peak_bytes();
  advices.pool = plan.problem.empty();
  if (one || !plan.fits()) advices.together.clear();
  return advices;
}

}  // namespace tandem
