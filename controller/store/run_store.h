// The record of a run: its steps, samples and evaluations, the interface of the store that keeps
// them, and the names of metrics that other code reads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/types/histogram.h"
#include "common/types/ledger_snapshot.h"
#include "common/types/sample.h"
#include "common/types/worker_load.h"
#include "controller/store/sample_condition.h"

namespace tandem {

// Names of the metrics that progress and report show; they are verl's names where verl has them.
inline constexpr const char* kRewardMean = "critic/rewards/mean";
// Of the rewards that are trained on: the standard deviation over samples, with n - 1 in the
// denominator as torch.std, and half the width of the mean's 95 % confidence interval with prompts
// taken as independent.
inline constexpr const char* kRewardStd = "critic/rewards/std";
inline constexpr const char* kRewardInterval = "critic/rewards/ci95";
// The groups that are trained on: their number; those whose rewards differ; those whose rewards are
// all equal, by whether the responses are right, wrong or neither; and the share of the equal ones,
// from which nothing is learned.
inline constexpr const char* kGroups = "critic/groups/count";
inline constexpr const char* kGroupsMixed = "critic/groups/mixed";
inline constexpr const char* kGroupsRight = "critic/groups/all_right";
inline constexpr const char* kGroupsWrong = "critic/groups/all_wrong";
inline constexpr const char* kGroupsEqual = "critic/groups/all_equal";
inline constexpr const char* kZeroStdRatio = "critic/groups/zero_std_ratio";
inline constexpr const char* kTrainedSamples = "training/samples";
inline constexpr const char* kResponseLengthMean = "response_length/mean";
// Nearest-rank percentiles over the samples that are trained on.
inline constexpr const char* kResponseLengthP50 = "response_length/p50";
inline constexpr const char* kResponseLengthP99 = "response_length/p99";
// The share of responses that data.max_response_length ended.
inline constexpr const char* kResponseCut = "response_length/clip_ratio";
inline constexpr const char* kGenerationThroughput = "perf/generation_tokens_per_second";
inline constexpr const char* kTrainingThroughput = "perf/training_tokens_per_second";
// The loss that is minimized, and its parts: policy loss, and entropy and KL to the reference
// policy where they have a coefficient.
inline constexpr const char* kLoss = "actor/loss";
inline constexpr const char* kPolicyLoss = "actor/pg_loss";
inline constexpr const char* kKlLoss = "actor/kl_loss";
inline constexpr const char* kClipFraction = "actor/pg_clipfrac";
inline constexpr const char* kLearningRate = "actor/lr";
inline constexpr const char* kEntropy = "actor/entropy";
inline constexpr const char* kPolicyKl = "actor/ppo_kl";
inline constexpr const char* kGradNorm = "actor/grad_norm";
// The KL penalty in the reward before it is multiplied by its coefficient, as the mean over
// responses of the mean over their tokens; and that coefficient.
inline constexpr const char* kRewardKl = "actor/reward_kl_penalty";
inline constexpr const char* kRewardKlCoef = "actor/reward_kl_penalty_coeff";
// The ratios of the step's first mini-batch, whose tokens are of the step's weights.
inline constexpr const char* kFirstRatioMin = "actor/first_ratio_min";
inline constexpr const char* kFirstRatioMax = "actor/first_ratio_max";
// The number of the step's updates that were skipped; absent if there were none.
inline constexpr const char* kSkippedUpdates = "actor/skipped_updates";
// The number of the step's updates for which bypass mode rejected every token, so that the policy
// loss had none; absent if there were none.
inline constexpr const char* kRejectedUpdates = "actor/rejected_updates";
// The share of tokens that the rollout correction rejected.
inline constexpr const char* kMaskedFraction = "rollout_corr/rollout_rs_masked_fraction";
// Trained tokens that were sampled by older weights than those at the beginning of their step.
inline constexpr const char* kStaleTokens = "partial/stale_tokens";
inline constexpr const char* kStaleTokensShare = "partial/stale_tokens_share";
inline constexpr const char* kStalenessMean = "partial/staleness_mean";
// Metrics of partial rollout; absent without it (docs/guides/partial_rollout.md, Metrics).
inline constexpr const char* kRounds = "partial/rounds";
inline constexpr const char* kOverlapRounds = "partial/overlap_rounds";
inline constexpr const char* kOverlapTokens = "partial/overlap_tokens";
inline constexpr const char* kCarriedGroups = "partial/carried_groups";
inline constexpr const char* kCarriedSamples = "partial/carried_samples";
inline constexpr const char* kWholeGroupsLeft = "partial/whole_groups_left";
inline constexpr const char* kCutSamples = "partial/cut_samples";
inline constexpr const char* kPrefilledAgain = "partial/prefilled_again_tokens";
inline constexpr const char* kPartialSamples = "partial/total_partial_num";
inline constexpr const char* kPartialRatio = "partial/partial_ratio";
inline constexpr const char* kPartialSpan = "partial/max_partial_span";
// The number of rollouts that were sent a version again after they had lost it; absent if there
// were none.
inline constexpr const char* kResentWeights = "weights/resent_rollouts";
// The number of batches of prompts that a step generated; absent without algorithm.filter_groups.
inline constexpr const char* kGenerationBatches = "training/filter_groups/num_gen_batches";
// Slot-seconds that were empty at the end of generation, and their share of all slot-seconds; and
// the predicted reduction of generation seconds by a cap per round, by the cap's name
// (controller/partial_rollout/tail_model.h).
inline constexpr const char* kTailEmptySlotSeconds = "partial/tail_empty_slot_seconds";
inline constexpr const char* kTailShare = "partial/tail_share";
inline constexpr const char* kPredictedSaving = "partial/predicted_saving_s/";
inline constexpr const char* kGeneratedTokens = "perf/generated_tokens";
inline constexpr const char* kGenerationSeconds = "timing_s/gen";
inline constexpr const char* kStepSeconds = "timing_s/step";
// The mean reward of a validation pass, and half the width of its 95 % confidence interval.
inline constexpr const char* kValRewardMean = "val/reward/mean";
inline constexpr const char* kValRewardInterval = "val/reward/ci95";

// The memory of one worker in one phase.
struct WorkerMemory {
  bool trainer = false;  // false: rollout
  int rank = 0;
  LedgerSnapshot ledger;  // with the peaks of the phase
};

struct PhaseTime {
  std::string phase;  // generate, score, sleep, reference, train, optimize, sync, wake, save, ...
  double seconds = 0;
  int64_t peak_bytes = 0;  // largest sum over the processes of one device
  std::vector<WorkerMemory> workers;
};

// What the rewards of a group's samples say. An estimator that compares a group's samples learns
// only from mixed ones. Equal rewards are right where every sample's correctness is 1 or more,
// wrong where it is 0 or less, else just equal. The correctness of a sample is its reward term
// "acc" where it has one, else its reward.
// Dynamic sampling drops groups: those are told apart, and not trained on.
enum class GroupKind { kMixed, kAllRight, kAllWrong, kAllEqual, kEvicted };
inline constexpr size_t kGroupKinds = 5;
inline constexpr std::array<const char*, kGroupKinds> kGroupKindNames = {
    "mixed", "all_right", "all_wrong", "all_equal", "evicted"};
// As the store keeps it and the API tells it.
inline std::string GroupKindName(GroupKind kind) {
  return kGroupKindNames[static_cast<size_t>(kind)];
}

// The samples of one prompt in a step, by the reward function's scores.
struct GroupRecord {
  int64_t group = 0;
  int64_t samples = 0;
  double reward_mean = 0;
  double reward_std = 0;  // with n - 1 in the denominator; 0 for a single sample
  GroupKind kind = GroupKind::kMixed;
};

// What is counted in StepRecord::histograms. Of samples: the reward function's score, response
// tokens. Of response tokens: their advantages, the rollout's log-probs and, where the trainers
// computed log-probs again (actor.old_log_prob: recompute), the trainers' probability divided by
// the rollout's.
inline constexpr const char* kRewardHistogram = "reward";
inline constexpr const char* kLengthHistogram = "length";
inline constexpr const char* kAdvantageHistogram = "advantage";
inline constexpr const char* kLogProbHistogram = "log_prob";
inline constexpr const char* kRatioHistogram = "ratio";

// One optimizer step.
struct UpdateRecord {
  int64_t version = 0;  // of the weights that it made
  int64_t samples = 0;
  int64_t tokens = 0;                     // that are trained
  std::map<std::string, double> metrics;  // of the mini-batch, before they are averaged
};

// Weights that a rollout was sent.
struct SyncRecord {
  int64_t time_us = 0;  // since 1970, UTC, when they had arrived
  int64_t version = 0;
  int rank = 0;  // of the rollout
  int64_t bytes = 0;
  double seconds = 0;
  std::string digest;    // of all tensors, hex
  bool checked = false;  // each tensor was read back and was equal
};

// What a rollout had to do, as a heartbeat told.
struct LoadRecord {
  int64_t time_us = 0;  // since 1970, UTC
  int rank = 0;
  GeneratorLoad load;  // without its peaks
};

struct StepRecord {
  int64_t step = 0;                       // counted from 1
  int64_t version = 0;                    // weight version after the step
  std::map<std::string, double> metrics;  // verl's names
  std::vector<PhaseTime> phases;
  std::string finished_at;                      // RFC 3339, UTC, with microseconds
  std::vector<GroupRecord> groups;              // written; read with the samples (SampleRecordPage)
  std::map<std::string, Histogram> histograms;  // by name; of the samples that are trained on
  std::vector<UpdateRecord> updates;
  std::vector<SyncRecord> syncs;  // since the step before
  std::vector<LoadRecord> load;   // likewise, by rank and time
  // The generation that repeated the step, after a recovery went back before it; 0: it is valid.
  int64_t undone_by = 0;
};

struct SampleRecord {
  uint64_t sample_id = 0;
  int64_t step = 0;
  int64_t group = 0;
  int64_t index = 0;
  // False: the next three are empty, as trainer.steps_with_texts says.
  bool texts_kept = true;
  std::string prompt;
  std::string response;
  std::string ground_truth;
  double reward = 0;
  int64_t response_tokens = 0;
  FinishReason finish_reason = FinishReason::kNone;
  int64_t weight_version = 0;  // of the first response token
  double advantage = 0;
  std::map<std::string, double> reward_terms;
  // SampleMeta::response_segments: runs of tokens by weight version, in order.
  std::vector<Segment> segments;
  // The sample's record in SampleStore's file of the step, as an offset in bytes; void if the
  // sample is undone.
  int64_t token_offset = 0;
  int64_t undone_by = 0;  // as in StepRecord
  // The same for equal prompt and truth in all steps; 0: an older build recorded the sample, none
  // of what follows is known. Read, not written.
  int64_t prompt_id = 0;
  int64_t prompt_tokens = 0;
  std::optional<double> min_log_prob;  // of the response's tokens, the rollout's
  std::optional<double> repetition;    // RepeatedShare of the response
  int64_t arrived_us = 0;              // since 1970, UTC: when the controller had all of it
  bool evicted = false;  // dynamic sampling dropped its group: it is not trained on, and its
                         // response is not kept
};

// One pass over the validation prompts.
struct EvaluationRecord {
  int64_t step = 0;  // finished steps before it; 0: before training
  int64_t version = 0;
  int64_t prompts = 0;
  int64_t samples = 0;
  std::map<std::string, double> metrics;  // val-core/..., val/reward/mean
  double seconds = 0;
  int64_t undone_by = 0;                // as in StepRecord
  std::vector<SampleRecord> responses;  // written; read by SampleQuery::evaluation
};

// How a start of a run ended.
enum class RunOutcome {
  kNone,      // it goes on, or was killed
  kFinished,  // all steps are done
  kStopped,   // by its user, with steps left
  kFailed,    // RunInfo::error says why
  kUnknown    // a build recorded it that recorded no ends
};
inline constexpr std::array<const char*, 5> kRunOutcomeNames = {"", "finished", "stopped", "failed",
                                                                "unknown"};
inline std::string RunOutcomeName(RunOutcome outcome) {
  return kRunOutcomeNames[static_cast<size_t>(outcome)];
}
// kUnknown for a name that is none.
inline RunOutcome RunOutcomeNamed(const std::string& name) {
  const auto* const found = std::find(kRunOutcomeNames.begin(), kRunOutcomeNames.end(), name);
  return found == kRunOutcomeNames.end()
             ? RunOutcome::kUnknown
             : static_cast<RunOutcome>(found - kRunOutcomeNames.begin());
}

struct RunInfo {
  std::string run_id;
  std::string run_dir;
  std::string started_at;      // RFC 3339, UTC
  std::string build;           // BuildText of the controller, then of workers of another build
  std::string numerics_class;  // of all workers
  std::string kernel_sets;     // in use: "amx", or several with commas
  std::string config_yaml;     // resolved
  std::string memory_plan;     // JSON, as memory_plan.h writes it
  int64_t total_steps = 0;
  int64_t first_step = 0;        // steps done before the start: 0 unless resumed
  double expected_val_rise = 0;  // of the validation reward over the run; 0: none expected
  int64_t max_response_tokens = 0;
  std::string ended_at;  // RFC 3339, UTC; "": not yet
  RunOutcome outcome = RunOutcome::kNone;
  std::string error;    // of a run that failed
  int64_t attempt = 0;  // which start in this run directory, from 1; read, not written
};

// Something that happened to a run and that its user may want to know later: a loss, a recovery, a
// checkpoint, the start and the end. Events stay, also those of steps that a recovery undoes.
struct EventRecord {
  int64_t seq = 0;                // ascending in a run directory; read, not written
  int64_t time_us = 0;            // since 1970, UTC
  int64_t step = 0;               // finished steps
  std::string severity = "info";  // or "warning", "error"
  std::string kind = "message";   // or "start", "end", "loss", "recovery", "undone", "checkpoint"
  std::string worker;             // "trainer 0"; "": of none
  std::string text;
  bool shown = true;     // also as a message to the user at the terminal; not recorded
  bool recorded = true;  // false: of use to who watches alone; not recorded
};

// The facts of a run that ends after `steps` of its planned steps: the expected rise of the
// validation reward is reduced in proportion.
inline RunInfo Shortened(RunInfo info, int64_t steps) {
  if (steps <= 0 || steps >= info.total_steps) return info;
  info.expected_val_rise *= static_cast<double>(steps) / static_cast<double>(info.total_steps);
  info.total_steps = steps;
  return info;
}

struct SampleRecordPage {
  std::vector<SampleRecord> samples;
  int64_t total = 0;
  std::vector<GroupRecord> groups;  // all of the step, or of what was undone of it
};

// Which steps to read: those from first_step to last_step, the newest of them if there are limits.
struct StepQuery {
  int64_t first_step = 0;
  int64_t last_step = 0;  // 0: to the newest
  int64_t limit = 0;      // records; 0: all
  // Of metrics and ledgers in the store, and of details; reached or exceeded by the last record.
  // 0: no limit.
  int64_t max_bytes = 0;
  bool undone = false;  // those that recoveries have undone, in place of the valid ones
  bool workers = true;  // with the ledgers of their phases
  bool phases = true;
  bool details = false;  // with histograms, updates, syncs and load
  // Only these metrics, each of which is read as one range of the store; empty: all.
  std::vector<std::string> metrics;
};

// Which samples of a step to read, in order of step and sample id; those of a validation in order
// of prompt.
struct SampleQuery {
  int64_t step = 0;
  int64_t limit = 0;  // 0: all
  int64_t offset = 0;
  int64_t max_bytes = 0;    // of texts; reached or exceeded by the last record. 0: no limit
  int64_t undone_by = 0;    // not 0: those that this generation has undone, not the valid ones
  int64_t prompt_id = 0;    // not 0: of this prompt alone; and with step 0 of all steps
  bool evicted = false;     // those that dynamic sampling dropped, not those that are trained on
  bool evaluation = false;  // the responses of the validation after the step
  std::optional<uint64_t> sample_id;        // the sample of this id alone
  std::vector<SampleCondition> conditions;  // all of them hold
  std::string contains;  // not empty: prompt or response has this text, letter for letter
  // Sorts by it, and then as said above; samples of which it is not known come last.
  std::optional<SampleField> order;
  bool descending = false;
};

struct EvaluationQuery {
  int64_t first_step = 0;
  // At most this many records, and the other undone ones of the last step among them; 0: all.
  int64_t limit = 0;
  bool undone = false;  // as in StepQuery
  bool newest = false;  // the last record alone, of the valid ones
};

// Reads the records of a run: its steps, samples, evaluations and events. Thread-safe.
class RunRecords {
 public:
  virtual ~RunRecords() = default;

  // In ascending order. With limits, a step of which several records are undone comes with all of
  // them.
  virtual absl::StatusOr<std::vector<StepRecord>> ListSteps(const StepQuery& query) = 0;
  virtual absl::StatusOr<SampleRecordPage> ListSamples(const SampleQuery& query) = 0;
  // In ascending order.
  virtual absl::StatusOr<std::vector<EvaluationRecord>> ListEvaluations(
      const EvaluationQuery& query) = 0;
  // The newest `limit` events in ascending order.
  virtual absl::StatusOr<std::vector<EventRecord>> ListEvents(int64_t limit) = 0;
};

// The records of a run that goes on: the train loop writes while API calls read. Rows are durable
// when a call returns. Recording a step again (with the time of its checkpoint) replaces its rows.
class RunStore : public RunRecords {
 public:
  virtual absl::Status RecordRun(const RunInfo& info) = 0;
  virtual absl::Status RecordStep(const StepRecord& step) = 0;
  // Records all samples of one step, in order of sample id.
  virtual absl::Status RecordSamples(int64_t step, const std::vector<SampleRecord>& samples) = 0;
  virtual absl::Status RecordEvaluation(const EvaluationRecord& evaluation) = 0;
  // Adds events behind all others.
  virtual absl::Status RecordEvents(const std::vector<EventRecord>& events) = 0;
  // Marks all rows after `step` as undone: the trainers' group number `generation`, which is larger
  // than that of any call before, repeats them. They stay readable by queries that ask for undone
  // ones.
  virtual absl::Status UndoAfter(int64_t step, int64_t generation) = 0;
};

}  // namespace tandem
