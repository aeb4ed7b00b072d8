#include "controller/run/resume_point.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>

#include <fmt/ranges.h>

#include "common/base/status.h"
#include "common/formats/files.h"
#include "common/formats/finished_mark.h"
#include "common/model_spec/model_spec.h"
#include "controller/data/pinned_inputs.h"
#include "controller/partial_rollout/buffer/saved_buffer.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Sections (ending in a dot) and keys whose change affects neither samples nor gradients.
constexpr std::array kFreeKeys = {
    "cluster.", "weight_sync.", "actor.checkpoint.", "rollout.val_kwargs.",
    // the start of a run without a checkpoint
    "model.lora.adapter_path",
    // validation data
    "data.val_files", "data.validation_shuffle", "data.val_max_samples",
    // what is compared
    "actor.compare_all_log_probs",
    // memory use of rollouts and trainers
    "model.enable_gradient_checkpointing", "rollout.max_num_seqs", "rollout.max_num_batched_tokens",
    "rollout.max_model_len", "rollout.gpu_memory_utilization", "rollout.load_format",
    "rollout.free_cache_engine", "rollout.sleep_level", "rollout.enable_prefix_caching",
    // how many rollouts there are, and on how many hosts; cluster.trainers counts the trainers
    "trainer.nnodes", "trainer.n_gpus_per_node", "rollout.nnodes", "rollout.n_gpus_per_node",
    // where rewards are computed, not how
    "reward.service_address", "reward.timeout_seconds", "reward.retries",
    // names, folders, files, how often they are written, and time limits
    "trainer.project_name", "trainer.experiment_name", "trainer.save_freq", "trainer.test_freq",
    "trainer.val_before_train", "trainer.default_local_dir", "trainer.max_actor_ckpt_to_keep",
    "trainer.resume_mode", "trainer.resume_from_path", "trainer.resume_changed_inputs",
    "trainer.disk_retry_seconds", "trainer.logger", "trainer.expected_val_rise",
    "trainer.max_seconds", "trainer.min_training_steps", "trainer.sample_files_to_keep",
    "trainer.steps_with_texts", "trainer.save_batch_freq",
    // what is shown
    "trainer.console_freq", "trainer.log_samples", "trainer.log_phases",
    // limits after which a run fails
    "actor.max_skipped_steps", "rollout.partial.max_rounds_without_batch"};
// Another number of ranks sums gradients in another grouping, which changes the last bits.
constexpr char kTrainers[] = "cluster.trainers";

bool IsFree(const std::string& key) {
  if (key == kTrainers) return false;
  return std::any_of(kFreeKeys.begin(), kFreeKeys.end(), [&](const std::string& free) {
    return free.back() == '.' ? key.starts_with(free) : key == free;
  });
}

// Lists every size in which two models differ, as "hidden_size 64 there, 128 here".
std::vector<std::string> GeometryChanges(const ModelSpec& there, const ModelSpec& here) {
  std::vector<std::string> changes;
  const auto compare = [&changes](const std::string& name, const auto& before, const auto& now) {
    if (before != now) changes.push_back(fmt::format("{} {} there, {} here", name, before, now));
  };
  compare("model_type", there.model_type, here.model_type);
  compare("vocab_size", there.vocab_size, here.vocab_size);
  compare("hidden_size", there.hidden_size, here.hidden_size);
  compare("num_hidden_layers", there.num_layers, here.num_layers);
  compare("num_attention_heads", there.num_heads, here.num_heads);
  compare("num_key_value_heads", there.num_kv_heads, here.num_kv_heads);
  compare("head_dim", there.head_dim, here.head_dim);
  compare("intermediate_size", there.intermediate_size, here.intermediate_size);
  compare("tie_word_embeddings", there.tie_word_embeddings, here.tie_word_embeddings);
  return changes;
}

absl::Status CheckGeometry(const std::string& checkpoint, const std::string& model_path) {
  // Without an export, the trainers compare the tensors when they load the checkpoint.
  const std::string exported = CheckpointIndex::HfExport(checkpoint);
  if (exported.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const ModelSpec there, LoadModelSpec(exported));
  TANDEM_ASSIGN_OR_RETURN(const ModelSpec here, LoadModelSpec(model_path));
  const std::vector<std::string> changes = GeometryChanges(there, here);
  if (changes.empty()) return absl::OkStatus();
  return InvalidArgument(
      "checkpoint {} does not fit model.path {}: {}; set model.path to the model that the run was "
      "started with, or start over with trainer.resume_mode=disable or another cluster.run_dir",
      checkpoint, model_path, fmt::join(changes, ", "));
}

// Checks that LoRA rank and alpha are those of the checkpoint: another rank means other shapes,
// another alpha another scale of their product. Targets cannot be compared by configuration alone
// (CheckResumedAdapters).
absl::Status CheckAdapters(const std::string& checkpoint,
                           const std::vector<ConfigChange>& changes,
                           bool adapters) {
  for (const ConfigChange& change : changes) {
    const bool rank = change.key == "model.lora.rank";
    if (!rank && !(adapters && change.key == "model.lora.alpha")) continue;
    return InvalidArgument("checkpoint {} was saved with {}={}, and the run has {}: set it to {}",
                           checkpoint, change.key, change.before, change.now, change.before);
  }
  return absl::OkStatus();
}

// Compares the inputs of the checkpoint with the run's, and refuses others unless the configuration
// accepts them, which is a warning then. Returns the keys whose inputs are equal.
absl::StatusOr<std::set<std::string>> CheckInputs(const ControllerState& state,
                                                  const v1::Config& config,
                                                  const ResumeOptions& options,
                                                  ResumePoint* point) {
  if (!options.inputs) return std::set<std::string>();
  if (state.inputs.empty()) {
    point->note += "; it has no digests of data and model, so they are not compared";
    return std::set<std::string>();
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<PinnedInput> now, options.inputs());
  const std::vector<std::string> changed = ChangedInputs(state.inputs, now);
  if (!changed.empty() && config.trainer().resume_changed_inputs() != "accept") {
    return InvalidArgument(
        "checkpoint {} was made with other inputs:\n  {}\nrestore the original inputs (any path "
        "will do); or set trainer.resume_changed_inputs=accept to continue, with results that "
        "differ from those of an unchanged run; or start over with trainer.resume_mode=disable",
        point->checkpoint, fmt::join(changed, "\n  "));
  }
  if (!changed.empty()) {
    point->warnings.push_back(
        fmt::format("the inputs differ from those of {}, as trainer.resume_changed_inputs "
                    "accepts: the run continues, with other results than without the change\n  {}",
                    point->checkpoint, fmt::join(changed, "\n  ")));
  }
  return KeysOfEqualInputs(state.inputs, now);
}

// Whether a start continues the run from a checkpoint or only inspects it (check_only).
enum class Purpose { kResume, kInspect };

absl::StatusOr<ResumePoint> At(const std::string& path,
                               const v1::Config& config,
                               const ResumeOptions& options,
                               Purpose purpose = Purpose::kResume) {
  TANDEM_ASSIGN_OR_RETURN(const ControllerState state, CheckpointIndex::ReadState(path));
  TANDEM_RETURN_IF_ERROR(CheckGeometry(path, config.model().path()));
  ResumePoint point{
      .checkpoint = path,
      .step = state.step,
      .note = fmt::format("{} {} (step {}, weight version {})",
                          purpose == Purpose::kInspect ? "looking at" : "resuming from", path,
                          state.step, state.version)};
  if (!config.model().lora().adapter_path().empty()) {
    point.note += "; model.lora.adapter_path is not read: the adapters are those of the checkpoint";
  }
  // An inspection uses only the checkpoint's weights, which do not depend on the configuration.
  if (purpose == Purpose::kInspect) return point;
  const auto changes = DiffConfig(state.config_yaml, config);
  if (!changes.ok()) return Annotate(changes.status(), "the configuration in " + path);
  TANDEM_RETURN_IF_ERROR(CheckAdapters(path, *changes, config.model().lora().rank() > 0));
  if (options.fits) TANDEM_RETURN_IF_ERROR(options.fits(path, point.step));
  TANDEM_ASSIGN_OR_RETURN(const std::set<std::string> equal_inputs,
                          CheckInputs(state, config, options, &point));
  std::vector<ConfigChange> others = *changes;
  std::erase_if(others, [&](const ConfigChange& c) { return equal_inputs.contains(c.key); });
  const std::vector<std::string> lines = ChangesOfTheRun(others);
  if (!lines.empty()) {
    point.warnings.push_back(
        fmt::format("the configuration differs from that of {}: the run continues, and results "
                    "will differ from those of an unchanged run\n  {}",
                    path, fmt::join(lines, "\n  ")));
  }
  return point;
}

std::string LaunchFile(const std::string& run_dir) { return run_dir + "/launch"; }

std::string FolderFor(const v1::Config& config,
                      CheckpointIndex& checkpoints,
                      SetAside what,
                      int64_t step) {
  return EarlierRun(config.cluster().run_dir(), checkpoints, what, step).Folder();
}

ResumePoint StartAnew(const v1::Config& config,
                      CheckpointIndex& checkpoints,
                      const std::string& why) {
  ResumePoint point{.set_aside = SetAside::kWholeRun};
  const std::string folder = FolderFor(config, checkpoints, point.set_aside, -1);
  if (!folder.empty()) {
    point.note = fmt::format(
        "{}: starting over; its checkpoints and records move to {} once the workers are up", why,
        folder);
  }
  return point;
}

// Resumes from trainer.resume_from_path: later checkpoints belong to steps that will be repeated,
// and those of another run than the given one's to a run that does not go on.
absl::StatusOr<ResumePoint> GoBackTo(const v1::Config& config,
                                     const ResumeOptions& options,
                                     CheckpointIndex& checkpoints) {
  const std::string& path = config.trainer().resume_from_path();
  TANDEM_ASSIGN_OR_RETURN(ResumePoint point, At(path, config, options));
  std::error_code error;
  const bool ours =
      fs::equivalent(fs::path(path + "/").parent_path().parent_path(), checkpoints.dir(), error);
  if (ours && !error) {
    point.set_aside = SetAside::kLaterCheckpoints;
  } else if (checkpoints.HasAfter(-1) ||
             EarlierRun(config.cluster().run_dir(), checkpoints, SetAside::kWholeRun)
                 .WasInterrupted()) {
    point.set_aside = SetAside::kWholeRun;
  }
  const std::string folder = FolderFor(config, checkpoints, point.set_aside, point.step);
  if (!folder.empty()) {
    point.note +=
        fmt::format("; {} to {} once the workers are up",
                    point.set_aside == SetAside::kWholeRun ? "the run that is here moves"
                                                           : "checkpoints of later steps move",
                    folder);
  }
  return point;
}

// The newest complete checkpoint, or the model where there is no checkpoint at all.
absl::StatusOr<ResumePoint> AtNewest(const v1::Config& config,
                                     const ResumeOptions& options,
                                     const CheckpointIndex& checkpoints,
                                     Purpose purpose = Purpose::kResume) {
  const bool look = purpose == Purpose::kInspect;
  // An inspection does not use the buffer of carried groups, so a damaged one does not matter.
  const FoundCheckpoint found =
      checkpoints.FindNewest(look ? CheckpointIndex::WholeCheck() : CheckSavedBuffer);
  if (!found.newest) {
    if (found.left_out.empty()) return ResumePoint{};
    return MakeStatus(absl::StatusCode::kDataLoss,
                      "no checkpoint in {} is whole:\n  {}\nbring the files back, or {}",
                      checkpoints.dir(), fmt::join(found.left_out, "\n  "),
                      look ? "look at the model itself with trainer.resume_mode=disable"
                           : fmt::format("start over with trainer.resume_mode=disable, which moves "
                                         "what is there to {}.previous and deletes nothing",
                                         checkpoints.dir()));
  }
  TANDEM_ASSIGN_OR_RETURN(ResumePoint point, At(found.newest->path, config, options, purpose));
  if (!found.left_out.empty()) {
    point.warnings.insert(point.warnings.begin(),
                          fmt::format("newer checkpoints are incomplete and are skipped{}\n  {}",
                                      look ? "" : "; their steps will be repeated",
                                      fmt::join(found.left_out, "\n  ")));
  }
  return point;
}

absl::StatusOr<ResumePoint> ByMode(const v1::Config& config,
                                   const ResumeOptions& options,
                                   CheckpointIndex& checkpoints) {
  const std::string& mode = config.trainer().resume_mode();
  if (mode == "resume_path") return GoBackTo(config, options, checkpoints);
  if (mode == "disable") return StartAnew(config, checkpoints, "trainer.resume_mode is disable");
  const std::optional<int64_t> finished = checkpoints.FinishedStep();
  if (HasMadeAllSteps(finished, config.trainer().max_seconds() > 0 ? 0 : options.total_steps)) {
    return StartAnew(config, checkpoints,
                     fmt::format("the run here had finished its {} steps", *finished));
  }
  return AtNewest(config, options, checkpoints);
}

}  // namespace

std::vector<std::string> ChangesOfTheRun(const std::vector<ConfigChange>& changes) {
  std::vector<std::string> lines;
  for (const ConfigChange& change : changes) {
    if (IsFree(change.key)) continue;
    lines.push_back(fmt::format("{}: {} -> {}", change.key, change.before, change.now));
  }
  return lines;
}

absl::StatusOr<ResumePoint> PeekResumePoint(const v1::Config& config,
                                            const CheckpointIndex& checkpoints) {
  const std::string& mode = config.trainer().resume_mode();
  if (mode == "disable") return ResumePoint{};
  return mode == "resume_path"
             ? At(config.trainer().resume_from_path(), config, {}, Purpose::kInspect)
             : AtNewest(config, {}, checkpoints, Purpose::kInspect);
}

absl::StatusOr<ResumePoint> ChooseResumePoint(const v1::Config& config,
                                              const ResumeOptions& options,
                                              CheckpointIndex& checkpoints) {
  const absl::StatusOr<std::string> last = ReadWholeFile(LaunchFile(config.cluster().run_dir()));
  const bool restarted = !options.launch_id.empty() && last.ok() && *last == options.launch_id;
  if (!restarted) return ByMode(config, options, checkpoints);
  TANDEM_ASSIGN_OR_RETURN(ResumePoint point, AtNewest(config, options, checkpoints));
  if (!point.checkpoint.empty()) return point;
  // This launch has saved nothing yet. What is in the folder is its own.
  TANDEM_ASSIGN_OR_RETURN(point, ByMode(config, options, checkpoints));
  point.set_aside = SetAside::kNothing;
  if (point.checkpoint.empty()) point.note.clear();
  return point;
}

int64_t StayingCheckpoints(const ResumePoint& start, const CheckpointIndex& checkpoints) {
  if (start.set_aside == SetAside::kWholeRun) return 0;
  const std::vector<CheckpointEntry> all = checkpoints.List();
  if (start.set_aside == SetAside::kNothing) return std::ssize(all);
  return std::count_if(all.begin(), all.end(),
                       [&](const CheckpointEntry& entry) { return entry.step <= start.step; });
}

absl::Status ClaimForLaunch(const std::string& run_dir, const std::string& launch_id) {
  if (launch_id.empty()) return absl::OkStatus();
  return WriteFileAtomically(LaunchFile(run_dir), launch_id);
}

}  // namespace tandem
