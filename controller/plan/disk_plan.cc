#include "controller/plan/disk_plan.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>

#include "common/base/status.h"
#include "common/formats/free_space.h"
#include "common/lora/lora_spec.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

constexpr int64_t kCheckpointsItem = 0;  // its index in DiskPlan::items
// Rows of the store besides its texts, and a step's metrics in run.db, metrics.jsonl and
// TensorBoard.
constexpr int64_t kSampleRowBytes = 512, kStepBytes = 64 << 10;
// A token's text. UTF-8 of a vocabulary's tokens has three to five bytes on average.
constexpr int64_t kTextBytesPerToken = 5;
constexpr char kCheckpoints[] = "checkpoints";

int64_t Mib(int64_t bytes) { return (bytes + (1 << 20) - 1) >> 20; }

// Products of counts that a user gives may exceed an int64_t.
int64_t Times(int64_t a, int64_t b) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 16;
  return b > 0 && a > kMost / b ? kMost : a * b;
}

absl::StatusOr<int64_t> CheckpointBytes(const ModelSpec& spec, const v1::Config& config) {
  const int64_t model = spec.parameters();
  int64_t trained = model;
  if (config.model().lora().rank() > 0) {
    TANDEM_ASSIGN_OR_RETURN(const LoraSpec lora, MakeLoraSpec(spec, LoraOptionsOf(config)));
    trained = lora.parameters();
    if (config.actor().checkpoint().save_lora_only()) return 4 * trained;
  }
  // Masters and two moments in float32, and the model in bfloat16.
  int64_t bytes = 4 * trained;
  if (SavesContent(config, "optimizer")) bytes += 8 * trained;
  if (SavesContent(config, "hf_model")) bytes += 2 * model;
  return bytes;
}

// How many checkpoints the run saves; by time alone, at least one.
int64_t SavedCheckpoints(const v1::Config& config, int64_t total_steps) {
  const int64_t every = config.trainer().save_freq();
  if (every < 0) return 1;
  if (every == 0) return std::max<int64_t>(1, config.trainer().max_actor_ckpt_to_keep() + 1);
  return std::max<int64_t>(1, (total_steps + every - 1) / every);
}

DiskItem Samples(const v1::Config& config, int64_t steps) {
  const int64_t samples = Times(config.data().train_batch_size(), config.rollout().n());
  const int64_t response = config.data().max_response_length();
  // Ids of 4 bytes, and for response tokens a log-prob, a version of 8 bytes and up to three
  // arrays.
  const int64_t sample = 4 * (config.data().max_prompt_length() + response) + 24 * response;
  const int64_t kept = config.trainer().sample_files_to_keep();
  const int64_t files = kept > 0 ? std::min(kept, steps) : steps;
  return {.what = "samples",
          .folder = config.cluster().run_dir(),
          .bytes = Times(files, Times(samples, sample)),
          .how = fmt::format("{} step(s) of {} MiB", files, Mib(Times(samples, sample)))};
}

DiskItem Store(const v1::Config& config, int64_t steps) {
  const int64_t samples = Times(config.data().train_batch_size(), config.rollout().n());
  const int64_t tokens = config.data().max_prompt_length() + config.data().max_response_length();
  const int64_t texts = Times(samples, Times(kTextBytesPerToken, tokens));
  const int64_t rest = Times(samples, kSampleRowBytes) + kStepBytes;
  const int64_t kept = config.trainer().steps_with_texts();
  DiskItem item{.what = "run.db and metrics", .folder = config.cluster().run_dir()};
  if (kept == 0 || kept >= steps) {
    item.bytes = Times(steps, texts + rest);
    item.how = fmt::format("{} step(s) of {} MiB", steps, Mib(texts + rest));
    return item;
  }
  // The texts of a step more are there until those of the oldest are dropped.
  item.bytes = Times(steps, rest) + Times(kept + 1, texts);
  item.how = fmt::format("{} step(s) of {} MiB, and {} MiB of texts of each of the newest {}",
                         steps, Mib(rest), Mib(texts), kept);
  return item;
}

DiskItem Logs(const v1::Config& config) {
  const v1::Cluster& cluster = config.cluster();
  const int64_t processes = 1 + cluster.trainers() + cluster.rollouts();
  const int64_t files = processes * (cluster.log_files_to_keep() + 1);
  return {.what = "logs",
          .folder = cluster.run_dir(),
          .bytes = Times(files, cluster.log_max_mb() << 20),
          .how = fmt::format("{} file(s) of {} MiB", files, cluster.log_max_mb())};
}

std::string ExistingFolder(std::filesystem::path folder) {
  std::error_code error;
  while (!std::filesystem::is_directory(folder, error) && folder.has_parent_path() &&
         folder != folder.parent_path()) {
    folder = folder.parent_path();
  }
  return std::filesystem::is_directory(folder, error) ? folder.string() : ".";
}

}  // namespace

int64_t PlannedSteps(const v1::Config& config, int64_t train_rows) {
  if (config.trainer().total_training_steps() > 0) return config.trainer().total_training_steps();
  const int64_t per_epoch = train_rows / config.data().train_batch_size();
  return std::max<int64_t>(1, per_epoch * config.trainer().total_epochs());
}

absl::StatusOr<DiskPlan> PlanDisk(const ModelSpec& spec,
                                  const v1::Config& config,
                                  int64_t total_steps,
                                  int64_t existing_checkpoints) {
  DiskPlan plan;
  TANDEM_ASSIGN_OR_RETURN(plan.checkpoint_bytes, CheckpointBytes(spec, config));
  const int64_t keep = config.trainer().max_actor_ckpt_to_keep();
  const int64_t saved = SavedCheckpoints(config, total_steps);
  plan.grows = keep == 0;
  plan.checkpoints = keep > 0 ? std::min(keep + 1, saved) : saved;
  // One is always written beside those that are there.
  const int64_t more = std::max<int64_t>(1, plan.checkpoints - existing_checkpoints);
  plan.items.push_back({.what = kCheckpoints,
                        .folder = config.trainer().default_local_dir(),
                        .bytes = Times(more, plan.checkpoint_bytes),
                        .how = fmt::format("{}{} of {} MiB", plan.grows ? "at least " : "", more,
                                           Mib(plan.checkpoint_bytes))});
  plan.items.push_back(Samples(config, total_steps));
  plan.items.push_back(Store(config, total_steps));
  if (config.cluster().log_max_mb() > 0) plan.items.push_back(Logs(config));
  return plan;
}

DiskSpace DiskSpaceOf(const std::string& folder) {
  const std::string existing = ExistingFolder(folder);
  DiskSpace space{.free_bytes =
                      FreeBytesIn(existing).value_or(std::numeric_limits<int64_t>::max())};
  struct stat status {};
  if (stat(existing.c_str(), &status) == 0) space.device = status.st_dev;
  return space;
}

std::vector<DiskLine> DiskPlanText(const DiskPlan& plan, const FindDiskSpace& find) {
  struct OneDisk {
    std::string folder, parts;
    int64_t bytes = 0, free_bytes = 0;
  };
  std::map<uint64_t, OneDisk> disks;
  for (const DiskItem& item : plan.items) {
    const DiskSpace space = find(item.folder);
    OneDisk& disk = disks[space.device];
    if (disk.folder.empty()) disk.folder = item.folder;
    disk.parts += fmt::format("{}{} {} MiB ({})", disk.parts.empty() ? "" : ", ", item.what,
                              Mib(item.bytes), item.how);
    disk.bytes += item.bytes;
    disk.free_bytes = space.free_bytes;
  }
  std::vector<DiskLine> lines;
  for (const auto& [device, disk] : disks) {
    lines.push_back(
        {.text = fmt::format("disk of {}: at most {} MiB will be written, {} MiB are free: {}",
                             disk.folder, Mib(disk.bytes), disk.free_bytes >> 20, disk.parts),
         .fits = disk.bytes <= disk.free_bytes});
  }
  return lines;
}

absl::Status CheckDiskPlan(const DiskPlan& plan, const FindDiskSpace& find) {
  const DiskItem& checkpoints = plan.items.at(kCheckpointsItem);
  const int64_t needed = plan.grows ? plan.checkpoint_bytes : checkpoints.bytes;
  const DiskSpace space = find(checkpoints.folder);
  if (needed <= space.free_bytes) return absl::OkStatus();
  return MakeStatus(
      absl::StatusCode::kResourceExhausted,
      "checkpoints need {} MiB in {} ({}), where {} MiB are free: make room there, choose another "
      "trainer.default_local_dir, keep fewer (trainer.max_actor_ckpt_to_keep), or leave moments or "
      "the model out of them (actor.checkpoint.save_contents)",
      Mib(needed), checkpoints.folder, checkpoints.how, space.free_bytes >> 20);
}

}  // namespace tandem
