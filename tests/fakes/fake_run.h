// A whole run around a train loop, with fake workers, data, rewards and time.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/net/protocol.h"
#include "controller/generation/one_step_off.h"
#include "controller/generation/overlapped_rounds.h"
#include "controller/generation/round_generation.h"
#include "controller/generation/whole_generation.h"
#include "controller/run/train_loop.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_rollout_client.h"
#include "tests/fakes/fake_trainer_client.h"
#include "tests/support/temp_dir.h"

namespace tandem::testing {

class FakePrompts : public PromptSource {
 public:
  absl::StatusOr<std::vector<Prompt>> NextBatch(int64_t n) override {
    if (position_.row + n > rows) return InvalidArgument("there are {} rows", rows);
    std::vector<Prompt> batch;
    for (int64_t i = 0; i < n; ++i, ++position_.row) {
      batch.push_back({.data_row = static_cast<uint64_t>(position_.row),
                       .epoch = epoch,
                       .tokens = {1, 2, 3},
                       .text = "prompt",
                       .data_source = "fake",
                       .ground_truth = "truth"});
    }
    return batch;
  }
  DataPosition Position() const override { return position_; }
  absl::Status Restore(const DataPosition& position) override {
    position_ = position;
    return absl::OkStatus();
  }
  int64_t size() const override { return 1000; }
  const Prompt* Row(uint64_t data_row) const override { return data_row < 1000 ? &row_ : nullptr; }

  uint64_t epoch = 0;  // of every prompt
  int64_t rows = 1000;

 private:
  Prompt row_{.tokens = {1, 2, 3}};
  DataPosition position_;
};

// Odd sample indices are right, unless `value` says otherwise.
class FakeReward : public RewardFunction {
 public:
  absl::StatusOr<std::vector<RewardScore>> Score(const std::vector<RewardItem>& items) override {
    std::vector<RewardScore> scores;
    for (const RewardItem& item : items) {
      const double right = value ? value(item.sample_id) : static_cast<double>(item.sample_id & 1u);
      scores.push_back({.score = right, .extras = {{"right", right}}});
    }
    scores.resize(scores.size() + static_cast<size_t>(too_many));
    return scores;
  }

  int too_many = 0;  // scores
  std::function<double(uint64_t sample_id)> value;
};

class FakeText : public PromptCodec {
 public:
  std::string Decode(const std::vector<int32_t>& tokens) const override {
    return std::to_string(tokens.size()) + " tokens";
  }
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const std::string& text) const override {
    return std::vector<int32_t>(text.begin(), text.end());
  }
  absl::StatusOr<std::vector<int32_t>> EncodeRaw(const std::string& text) const override {
    return EncodeChat(text);
  }
};

class MemoryRunStore : public RunStore {
 public:
  absl::Status RecordRun(const RunInfo&) override {
    return on_write ? on_write() : absl::OkStatus();
  }
  absl::Status RecordStep(const StepRecord& step) override {
    if (on_write) TANDEM_RETURN_IF_ERROR(on_write());
    steps[step.step] = step;
    return absl::OkStatus();
  }
  absl::Status RecordSamples(int64_t step, const std::vector<SampleRecord>& records) override {
    if (on_write) TANDEM_RETURN_IF_ERROR(on_write());
    samples[step] = evicted[step] = records;
    std::erase_if(samples[step], [](const SampleRecord& record) { return record.evicted; });
    std::erase_if(evicted[step], [](const SampleRecord& record) { return !record.evicted; });
    return absl::OkStatus();
  }
  absl::Status RecordEvaluation(const EvaluationRecord& evaluation) override {
    if (on_write) TANDEM_RETURN_IF_ERROR(on_write());
    evaluations.push_back(evaluation);
    return absl::OkStatus();
  }
  absl::Status RecordEvents(const std::vector<EventRecord>& records) override {
    events.insert(events.end(), records.begin(), records.end());
    return absl::OkStatus();
  }
  absl::Status UndoAfter(int64_t step, int64_t generation) override {
    if (on_write) TANDEM_RETURN_IF_ERROR(on_write());
    for (auto record = steps.upper_bound(step); record != steps.end();) {
      record->second.undone_by = generation;
      undone.push_back(std::move(record->second));
      record = steps.erase(record);
    }
    std::erase_if(evaluations, [step](const auto& record) { return record.step > step; });
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<StepRecord>> ListSteps(const StepQuery& query) override {
    ++step_queries;
    std::vector<StepRecord> list;
    if (query.undone) {
      for (const StepRecord& step : undone) {
        if (step.step >= query.first_step) list.push_back(step);
      }
      return list;
    }
    for (const auto& [number, step] : steps) list.push_back(step);
    return list;
  }
  absl::StatusOr<SampleRecordPage> ListSamples(const SampleQuery& query) override {
    return SampleRecordPage{.samples = samples[query.step],
                            .total = static_cast<int64_t>(samples[query.step].size())};
  }
  absl::StatusOr<std::vector<EvaluationRecord>> ListEvaluations(
      const EvaluationQuery& query) override {
    std::vector<EvaluationRecord> list;
    for (const EvaluationRecord& evaluation : evaluations) {
      if (evaluation.step >= query.first_step) list.push_back(evaluation);
    }
    return list;
  }
  absl::StatusOr<std::vector<EventRecord>> ListEvents(int64_t) override { return events; }
  std::vector<double> Advantages(int64_t step) const {
    std::vector<double> values;
    for (const SampleRecord& sample : samples.at(step)) values.push_back(sample.advantage);
    return values;
  }

  std::map<int64_t, StepRecord> steps;
  std::vector<StepRecord> undone;
  std::atomic<int> step_queries = 0;                     // so far
  std::map<int64_t, std::vector<SampleRecord>> samples;  // that are trained on
  std::map<int64_t, std::vector<SampleRecord>> evicted;
  std::vector<EvaluationRecord> evaluations;
  std::vector<EventRecord> events;
  // Called by each write, which fails with its error and changes nothing then. May be empty.
  std::function<absl::Status()> on_write;
};

// What a file with replayed steps would hold.
class MemoryTracker : public Tracker {
 public:
  void Log(int64_t step, const Metrics&) override { steps.push_back(step); }
  absl::Status Rewind(int64_t step) override {
    if (on_write) TANDEM_RETURN_IF_ERROR(on_write());
    std::erase_if(steps, [step](int64_t logged) { return logged > step; });
    return absl::OkStatus();
  }
  absl::Status Flush() override { return on_write ? on_write() : absl::OkStatus(); }

  std::vector<int64_t> steps;
  // Called by Rewind and Flush, which fail with its error. May be empty.
  std::function<absl::Status()> on_write;
};

class RecordingProgress : public ProgressSink {
 public:
  void OnRunStart(const RunInfo&) override {}
  void OnPhase(int64_t, const std::string& phase) override { phases.push_back(phase); }
  void OnPhaseProgress(int64_t, int64_t, int64_t) override {}
  void OnLogProbs(int64_t, const LogProbSummary& comparison) override {
    comparisons.push_back(comparison);
  }
  void OnShortened(int64_t steps) override { shortened.push_back(steps); }
  void OnStep(const StepRecord&) override {}
  void OnEvaluation(const EvaluationRecord&) override {}
  void OnMessage(const std::string& text) override { messages.push_back(text); }
  void OnRunEnd(const RunSummary&, const RunFigures&) override {}

  std::vector<std::string> phases, messages;
  std::vector<LogProbSummary> comparisons;
  std::vector<int64_t> shortened;
};

// Workers restart while somebody waits for them: Kill marks them lost, the next sleep of the clock
// registers their successors.
class FakeRun {
 public:
  explicit FakeRun(
      int pairs,
      int64_t max_restarts = 3,
      CheckPolicy check_policy = {},
      ScrambleMode scramble = ScrambleMode::kOff,
      std::unique_ptr<WeightCheckFiles> check_files = MakeFullCheckFiles({.model_dir = "/model"}))
      : FakeRun(Topology{.trainers = pairs, .rollouts = pairs},
                max_restarts,
                check_policy,
                scramble,
                std::move(check_files)) {}

  explicit FakeRun(
      const Topology& topology,
      int64_t max_restarts = 3,
      CheckPolicy check_policy = {},
      ScrambleMode scramble = ScrambleMode::kOff,
      std::unique_ptr<WeightCheckFiles> check_files = MakeFullCheckFiles({.model_dir = "/model"}))
      : active(std::make_shared<ActiveRollouts>(topology.rollouts)),
        registry({.topology = topology, .rollouts = active}, clock),
        pool(registry, Factory(), topology, clock, active),
        probe({.topology = topology, .rollouts = active, .vocab_limit = 100}),
        own_placement(MakePlacement(topology, options)),
        weights(pool, placement.Routes(), std::move(check_files), check_policy, scramble),
        budget(max_restarts) {
    clock.OnSleep([this] { RestartMissing(); });
    options.total_steps = 2;
    options.train_batch_size = 2;
    options.samples_per_prompt = 4;
    options.mini_batch_prompts = 2;
    options.sampling.max_tokens = 8;
    options.model_path = "/model";
    options.val_before_train = false;
    options.run_dir = options.local_dir = dir.path();
    options.probe = false;
    RestartMissing();
  }

  // Call number `after` + 1 of `method` fails as calls to a dying process do.
  void DieAt(const WorkerKey& key, const std::string& method, int after = 0) {
    journal.FailNext(key.Text(), method, absl::UnavailableError("connection lost"), after);
    dies_.insert(key);
  }

  absl::Status Run(const std::string& checkpoint = "") {
    Prepare(StartMode::kTrain);
    return loop->Run(checkpoint);
  }

  // Makes control and loop from the options as they are now.
  void Prepare(StartMode start) {
    loop.reset();  // refers to what is made anew
    upcoming = options.partial.one_step_off ? *SampleStore::Open(dir.path() / "upcoming_samples", 1)
                                            : nullptr;
    auto opened = CheckpointIndex::Open(dir.path() / "checkpoints", 0);
    checkpoints = std::make_unique<CheckpointIndex>(*std::move(opened));
    samples = *SampleStore::Open(dir.path() / "samples", 0);
    fleet = std::make_unique<RolloutFleet>(pool, weights, budget, progress, fleet_options);
    parts = std::make_unique<StepContext>(Parts());
    RunModes modes{.generation = MakeGenerationMode(), .placement = placement};
    rounds = dynamic_cast<const RoundGeneration*>(modes.generation.get());
    control = std::make_unique<RunControl>(options.total_steps, start);
    loop = std::make_unique<TrainLoop>(*parts, options, std::move(modes), *control);
  }

  // As assembly chooses it by options.partial.
  std::unique_ptr<GenerationMode> MakeGenerationMode() {
    if (!options.partial.enabled) return std::make_unique<WholeGeneration>(*parts, options);
    const std::string path = dir.path() / "partial_journal.jsonl";
    auto round_journal = write_round ? *RoundJournal::Open(path, "fake run", write_round)
                                     : *RoundJournal::Open(path, "fake run");
    auto buffer = *RolloutBuffer::Open(dir.path() / "partial_pool",
                                       {.tokenizer_digest = "fake",
                                        .vocab_limit = 100,
                                        .samples_per_prompt = options.samples_per_prompt,
                                        .sampling = options.sampling});
    auto runner = std::make_unique<RoundRunner>(options.partial, std::move(buffer),
                                                std::move(round_journal), clock);
    if (options.partial.one_step_off) {
      return std::make_unique<OneStepOff>(*parts, options, std::move(runner));
    }
    if (options.partial.overlap) {
      return std::make_unique<OverlappedRounds>(*parts, options, std::move(runner));
    }
    return std::make_unique<RoundGeneration>(*parts, options, std::move(runner));
  }

  StepContext Parts() {
    return {.pool = pool,
            .weights = weights,
            .fleet = *fleet,
            .budget = budget,
            .prompts = prompts,
            .reward = reward,
            .text = text,
            .samples = *samples,
            .upcoming = upcoming.get(),
            .probe = probe,
            .store = *used_store,
            .tracker = tracker,
            .progress = progress,
            .checkpoints = *checkpoints,
            .disk = disk,
            .clock = clock,
            .validation = validation,
            .interrupted = [this] { return control && control->stop_now(); }};
  }

  void RestartMissing() {
    for (const WorkerRole role : {WorkerRole::kTrainer, WorkerRole::kRollout}) {
      const int count =
          role == WorkerRole::kTrainer ? pool.topology().trainers : pool.topology().rollouts;
      for (int rank = 0; rank < count; ++rank) {
        const WorkerKey key{role, rank};
        if (registry.ReadyIncarnation(key) || stay_away.contains(key)) continue;
        // The others were only cut off for a moment and come back as they were.
        if (dies_.erase(key) > 0 || !registry.Find(key)) ++nonce_of_[key];
        (void)registry.Register({.protocol = kProtocolVersion,
                                 .key = key,
                                 .host = {.boot_id = "host", .node = NodeOf(key)},
                                 .device = "cpu:" + std::to_string(rank),
                                 .boot_nonce = std::to_string(nonce_of_[key]),
                                 .numerics_class = "avx2",
                                 .data_address = NodeOf(key) + ":1"});
      }
    }
  }

  TempDir dir;
  FakeClock clock;
  CallJournal journal;
  ForwardBackwardReply forward;  // of every rank; its comparison also that of a scoring pass
  int64_t differing = 0;         // log-probs of a comparison, of every rank
  // The tokens that a rank compares of a mini-batch (-1: of the batch): all that the present
  // weights sampled, unless a test says otherwise.
  std::function<int64_t(int64_t step, int64_t mini_batch, int rank)> comparable =
      [this](int64_t step, int64_t mini_batch, int rank) {
        return Comparable(step, mini_batch, rank);
      };
  WeightCheckResult check{.expected = 3, .checked = 3};  // of every rollout
  std::set<int64_t> skipped_versions;                    // that the trainers make without an update
  float first_log_prob = -1.0f;                          // of every sample
  FakeResponses responses;                               // of every rollout
  std::set<WorkerKey> stay_away;                         // are not started again
  const std::shared_ptr<ActiveRollouts> active;
  WorkerRegistry registry;
  WorkerPool pool;
  ParityProbe probe;
  float probe_log_prob = -1.0f;  // what trainers make of the probe's first tokens
  std::unique_ptr<Placement> own_placement;
  Placement& placement = *own_placement;
  WeightSync weights;
  RestartBudget budget;
  FakePrompts prompts;
  FakeReward reward;
  FakeText text;
  MemoryRunStore store;
  RunStore* used_store = &store;  // by the loop
  MemoryTracker tracker;
  RecordingProgress progress;
  DiskWait disk{clock,
                {.ended = [this] { return control && control->snapshot().ending(); },
                 .tell = [this](const std::string& line) { progress.OnMessage(line); }}};
  std::vector<Prompt> validation;
  TrainOptions options;
  RolloutFleetOptions fleet_options;
  RoundJournal::Writer write_round;  // of partial rollout's journal, if set
  // Of every trainer, if set before its first call.
  std::function<void(StatusDone)> on_sync;
  std::function<void()> on_cancel;
  std::function<void(int rank, const ResetCall&)> on_reset;
  std::function<void(const ForwardBackwardCall&, ForwardBackwardReply&)>
      on_forward_backward;  // of trainer 0
  std::map<WorkerKey, int> clients_made;
  // Instead of FakeRolloutClient, if set.
  std::function<std::shared_ptr<RolloutClient>(int rank, int64_t incarnation)> make_rollout;
  std::unique_ptr<CheckpointIndex> checkpoints;
  std::unique_ptr<SampleStore> samples;
  std::unique_ptr<SampleStore> upcoming;  // null without options.partial.one_step_off
  std::unique_ptr<RolloutFleet> fleet;
  std::unique_ptr<StepContext> parts;
  const RoundGeneration* rounds = nullptr;  // the loop's, with options.partial
  std::unique_ptr<RunControl> control;
  std::unique_ptr<TrainLoop> loop;

 private:
  int64_t Comparable(int64_t step, int64_t mini_batch, int rank) const {
    int64_t tokens = 0;
    const bool ahead = samples->step() != step;
    const SampleStore& assigned = ahead ? *upcoming : *samples;
    const std::vector<uint64_t> ids = assigned.Assigned(step, mini_batch, rank).value();
    for (const uint64_t id : ids) {
      const Sample sample = assigned.Read(id).value();
      for (const int64_t version : sample.versions) {
        tokens += version == loop->position().version ? 1 : 0;
      }
    }
    return tokens;
  }
  void ScoreProbe(int64_t step, int rank) {
    const auto made = probe.Samples(step, rank);
    for (const Sample& sample : *made) {
      (void)probe.PutLogProbs(step, rank, sample.sample_id, {probe_log_prob, -2.0f});
    }
  }
  // Of a run of one host it has no name.
  std::string NodeOf(const WorkerKey& key) const {
    const Topology& topology = pool.topology();
    if (!topology.several_hosts()) return "";
    const int per_host = key.role == WorkerRole::kTrainer ? topology.trainers_per_host()
                                                          : topology.rollouts_per_host();
    return "node" + std::to_string(key.rank / per_host);
  }

  ClientFactory Factory() {
    return {.trainer =
                [this](const WorkerEntry& entry) -> absl::StatusOr<std::shared_ptr<TrainerClient>> {
              ++clients_made[entry.key()];
              auto trainer = std::make_shared<FakeTrainerClient>(
                  journal, entry.key().rank, entry.incarnation, forward, skipped_versions, check);
              trainer->comparable = comparable;
              trainer->differing = differing;
              trainer->on_sync = on_sync;
              trainer->on_cancel = on_cancel;
              trainer->on_reset = on_reset;
              if (entry.key().rank == 0) trainer->on_forward_backward = on_forward_backward;
              trainer->on_probe = [this](int64_t step, int rank) { ScoreProbe(step, rank); };
              return trainer;
            },
            .rollout =
                [this](const WorkerEntry& entry) -> absl::StatusOr<std::shared_ptr<RolloutClient>> {
              ++clients_made[entry.key()];
              if (make_rollout) return make_rollout(entry.key().rank, entry.incarnation);
              auto rollout =
                  std::make_shared<FakeRolloutClient>(journal, entry.key().rank, entry.incarnation);
              rollout->first_log_prob = first_log_prob;
              rollout->responses = responses;
              return rollout;
            }};
  }

  std::set<WorkerKey> dies_;
  std::map<WorkerKey, int> nonce_of_;
};

}  // namespace tandem::testing
