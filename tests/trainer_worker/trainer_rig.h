// Trainers as threads, each with a paired rollout in the same process and a controller that is a
// list of samples.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "rollout_worker/weights/update_transaction.h"
#include "tests/fakes/fake_update_client.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "tests/trainer_worker/trainer_ranks.h"
#include "trainer_worker/trainer.h"

namespace tandem::testing {

// Hands out fixed samples and keeps the log-probs that come back.
class ListedSamples : public SampleStream {
 public:
  absl::StatusOr<std::vector<Sample>> Pull(int64_t, int64_t) override {
    TANDEM_RETURN_IF_ERROR(fail);
    return samples;
  }
  absl::StatusOr<std::vector<Sample>> PullProbe(int64_t) override { return probe; }
  absl::Status PutLogProbs(int64_t,
                           const std::string& policy,
                           const LogProbsBySample& log_probs) override {
    received[policy] = log_probs;
    return absl::OkStatus();
  }

  std::vector<Sample> samples, probe;
  std::map<std::string, LogProbsBySample> received;
  absl::Status fail;
};

// What a rollout worker holds.
struct LinkedRollout {
  explicit LinkedRollout(const WeightLayout* weight_layout)
      : layout(weight_layout),
        storage(static_cast<size_t>(layout->total_bytes())),
        receiver(CreateCpuStorageOps(layout, storage.data(), std::make_shared<ThreadPool>(1))),
        client(&receiver) {}
  const WeightLayout* layout;
  std::vector<std::byte> storage;
  UpdateTransaction receiver;
  FakeUpdateClient client;
};

// A connection to it: forwards everything.
class MemoryLink : public UpdateClient, public WeightReader {
 public:
  explicit MemoryLink(LinkedRollout* rollout) : rollout_(rollout) {}
  absl::StatusOr<int64_t> HeldVersion() override { return rollout_->client.HeldVersion(); }
  absl::StatusOr<PeerConnection> Begin(const UpdateRequest& request,
                                       const ProducerSlots& slots) override {
    return rollout_->client.Begin(request, slots);
  }
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override {
    return rollout_->client.StartApply(slot, entries);
  }
  absl::Status WaitApply(int slot) override { return rollout_->client.WaitApply(slot); }
  absl::Status Commit(const std::vector<Digest>& digests) override {
    return rollout_->client.Commit(digests);
  }
  absl::Status Abort(const std::string& reason) override { return rollout_->client.Abort(reason); }
  absl::StatusOr<HeldWeights> Digests() override {
    return HeldWeights{rollout_->receiver.version(), ManifestOf(*rollout_->layout),
                       rollout_->receiver.Digests().value()};
  }
  absl::StatusOr<std::string> Read(const std::string& name, int64_t row, int64_t rows) override {
    TANDEM_ASSIGN_OR_RETURN(const TensorPlace* place, rollout_->layout->Find(name));
    std::string data(
        static_cast<size_t>(rows * place->cols()) * DTypeBytes(rollout_->layout->dtype()), '\0');
    rollout_->layout->ReadRows(
        rollout_->storage.data() + rollout_->layout->group_offset(place->layer), *place, row, rows,
        data.data());
    return data;
  }

 private:
  LinkedRollout* rollout_;
};

class TrainerRig {
 public:
  explicit TrainerRig(int world_size, TrainerOptions options = {}) : options_(options) {
    options_.session.model_dir = (dir_.path() / "model").string();
    options_.session.vocab_limit = TinyTokenizerSize();
    options_.session.max_sequence_tokens = 128;
    options_.session.max_micro_batch_tokens = 200;
    options_.session.optimizer.schedule.lr = 1e-3;
    options_.session.publish.slot_bytes = 1 << 14;
    options_.rpc_timeout = kPatience;
    REQUIRE(WriteTinyModel(options_.session.model_dir).ok());
    auto spec = LoadModelSpec(options_.session.model_dir);
    REQUIRE(spec.ok());
    // Targets that it lacks are what a trainer says.
    if (auto with = WithAdapters(*spec, options_.session.lora); with.ok()) spec = with;
    layout_ = WeightLayout::Build(*spec, options_.dtype);
    for (int rank = 0; rank < world_size; ++rank) ranks_.push_back(MakeRank(rank));
  }

  struct Rank {
    ListedSamples samples;
    std::unique_ptr<LinkedRollout> rollout;
    std::unique_ptr<Trainer> trainer;
    absl::Status status;
  };

  // `body` on all ranks at once.
  void Run(const std::function<absl::Status(Rank&, int)>& body) {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      threads.emplace_back([&, i] { ranks_[i]->status = body(*ranks_[i], static_cast<int>(i)); });
    }
  }
  void RunOk(const std::function<absl::Status(Rank&, int)>& body) {
    Run(body);
    for (const auto& rank : ranks_) {
      INFO(rank->status.ToString());
      REQUIRE(rank->status.ok());
    }
  }

  void Reset(int64_t generation, const std::string& checkpoint = "", int64_t version = 0) {
    RunOk([&](Rank& rank, int) {
      return rank.trainer->Reset(ResetFor(generation, checkpoint, version)).status();
    });
  }
  ResetCommand ResetFor(int64_t generation, const std::string& checkpoint, int64_t version) {
    return {.generation = generation,
            .world_size = size(),
            .rendezvous = (dir_.path() / "group.sock").string(),
            .checkpoint_dir = checkpoint,
            .version = version};
  }
  void GiveSamples(const std::vector<Sample>& samples) {
    all_ = samples;
    for (int i = 0; i < size(); ++i) (*this)[i].samples.samples = Share(samples, i, size());
  }
  ForwardBackwardCommand TrainCommand(int64_t version, bool compare = false) const {
    return {.step = 1,
            .mini_batch = 0,
            .version = version,
            .global_tokens = static_cast<double>(TrainedTokens(all_)),
            .global_samples = static_cast<int64_t>(all_.size()),
            .compare_log_probs = compare};
  }
  // ForwardBackward and OptimizerStep from `version` to the next.
  void TrainStep(int64_t version) {
    RunOk([&](Rank& rank, int) -> absl::Status {
      TANDEM_RETURN_IF_ERROR(rank.trainer->ForwardBackward(TrainCommand(version)).status());
      return rank.trainer->OptimizerStep(version + 1).status();
    });
  }
  SyncCommand SyncFor(int64_t version, int rank) const {
    SyncCommand command{.version = version,
                        .targets = {{.address = std::to_string(rank), .incarnation = 1}}};
    for (int i = 0; i < size(); ++i) command.target_ranks.push_back(i);
    return command;
  }
  void Sync(int64_t version) {
    RunOk([&](Rank& rank, int index) {
      return rank.trainer->SyncWeights(SyncFor(version, index)).status();
    });
  }

  Rank& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::string& model_dir() const { return options_.session.model_dir; }
  std::string Folder(const std::string& name) {
    const auto path = dir_.path() / name;
    std::filesystem::create_directories(path);
    return path.string();
  }
  const WeightLayout& layout() const { return layout_; }

 private:
  std::unique_ptr<Rank> MakeRank(int index) {
    auto rank = std::make_unique<Rank>();
    rank->rollout = std::make_unique<LinkedRollout>(&layout_);
    TrainerOptions options = options_;
    options.rank = index;
    LinkedRollout* rollout = rank->rollout.get();
    auto trainer = Trainer::Create(options, &rank->samples,
                                   [rollout](const RolloutTarget&) -> absl::StatusOr<RolloutLink> {
                                     auto link = std::make_unique<MemoryLink>(rollout);
                                     WeightReader* reader = link.get();
                                     return RolloutLink{std::move(link), reader};
                                   });
    REQUIRE(trainer.ok());
    rank->trainer = *std::move(trainer);
    return rank;
  }

  TempDir dir_;
  TrainerOptions options_;
  WeightLayout layout_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Sample> all_;
};

}  // namespace tandem::testing
