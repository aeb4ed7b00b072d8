// Every request that a trainer worker serves, to its service around a trainer of a tiny model that
// is alone in its group, has two samples and reaches no rollout. The input is a sequence of calls:
// which one, then its message.
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <absl/time/time.h>
#include <grpcpp/grpcpp.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "tandem/v1/trainer.grpc.pb.h"
#include "tandem/v1/types.pb.h"
#include "tests/fuzz/call_table.h"
#include "tests/fuzz/message_builder.h"
#include "tests/fuzz/smallest_model.h"
#include "tests/fuzz/target.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "trainer_worker/engine_thread.h"
#include "trainer_worker/trainer.h"
#include "trainer_worker/trainer_service.h"

namespace tandem::fuzz {
namespace {

// The same two samples for every batch.
class TwoSamples : public SampleStream {
 public:
  absl::StatusOr<std::vector<Sample>> Pull(int64_t, int64_t) override {
    return std::vector<Sample>{Made(1, 2), Made(2, 3)};
  }
  absl::StatusOr<std::vector<Sample>> PullProbe(int64_t) override {
    return std::vector<Sample>{Made(3, 1)};
  }
  absl::Status PutLogProbs(int64_t, const std::string&, const LogProbsBySample&) override {
    return absl::OkStatus();
  }

 private:
  static Sample Made(uint64_t id, size_t response) {
    Sample sample;
    sample.sample_id = id;
    sample.prompt_tokens = 2;
    sample.tokens = {1, 2};
    sample.tokens.resize(2 + response, 3);
    sample.segments = {{0, 2, false, 0}, {2, static_cast<int64_t>(response), true, 0}};
    sample.log_probs.assign(response, -5.5f);
    sample.versions.assign(response, 0);
    sample.advantages.assign(response, id == 1 ? 1.0f : -1.0f);
    return sample;
  }
};

class TrainerRank {
 public:
  TrainerRank() {
    SetLogLevel(LogLevel::kError);  // a line for each refused call would take longer than the call
    TrainerOptions options;
    options.session.model_dir = SmallestModelDir();
    options.session.vocab_limit = testing::TinyTokenizerSize();
    options.session.max_sequence_tokens = 32;
    options.session.max_micro_batch_tokens = 32;
    options.session.optimizer.schedule.lr = 1e-3;
    options.session.publish.slot_bytes = 1 << 14;
    options.rpc_timeout = absl::Milliseconds(1);  // what other ranks have to join a group in
    std::filesystem::create_directories(Path("saved"));
    auto trainer = Trainer::Create(options, &samples_,
                                   [](const RolloutTarget& target) -> absl::StatusOr<RolloutLink> {
                                     return MakeStatus(absl::StatusCode::kUnavailable,
                                                       "nothing listens on {}", target.address);
                                   });
    Must(trainer.status());
    trainer_ = *std::move(trainer);
    v1::WorkerId worker;
    worker.set_role(v1::ROLE_TRAINER);
    worker.set_incarnation(kIncarnation);
    service_->SetReady(trainer_.get(), &engine_, worker,
                       {.sockets = {dir_.path()},
                        .loaded = {dir_.path(), SmallestModelDir()},
                        .saved = {dir_.path()}});
    methods_ = static_cast<Service*>(service_->service());
    Must(
        trainer_
            ->Reset(
                {.generation = kGeneration, .rendezvous = Path("group.sock"), .checkpoint_dir = ""})
            .status());
  }
  ~TrainerRank() { engine_.Stop(); }

  void Call(ByteSource& source) const { calls_.CallOne(source); }
  // Whether it still has the group and the weights that it had at first.
  bool IsNew() const { return trainer_->status().version == 0 && HasFirstGroup() && !lost_group_; }

 private:
  using Service = v1::TrainerService::Service;
  using Calls = std::vector<CallTable::Entry>;

  static constexpr int64_t kIncarnation = 7;
  static constexpr int64_t kGeneration = 2;  // of the group

  // A trainer without a group would accept calls of the next generation as well.
  bool HasFirstGroup() const {
    return trainer_->CheckGeneration(kGeneration).ok() &&
           !trainer_->CheckGeneration(kGeneration + 1).ok();
  }
  static void Must(const absl::Status& status) {
    if (!status.ok()) throw std::runtime_error(status.ToString());
  }

  Calls MakeCalls() {
    return {Unary("TrainerService.Reset", &Service::Reset),
            Unary("TrainerService.ForwardBackward", &Service::ForwardBackward),
            Unary("TrainerService.OptimizerStep", &Service::OptimizerStep),
            Unary("TrainerService.ComputeLogProbs", &Service::ComputeLogProbs),
            Unary("TrainerService.SyncWeights", &Service::SyncWeights),
            Unary("TrainerService.CheckWeights", &Service::CheckWeights),
            Unary("TrainerService.SaveState", &Service::SaveState),
            Unary("TrainerService.GetStatus", &Service::GetStatus),
            Unary("TrainerService.Shutdown", &Service::Shutdown)};
  }

  template <typename Request, typename Response>
  CallTable::Entry Unary(const std::string& name,
                         grpc::Status (Service::*method)(grpc::ServerContext*,
                                                         const Request*,
                                                         Response*)) {
    return {name, [this, method](ByteSource& source) {
              auto request = Made<Request>(source);
              Steer(source, "incarnation", kIncarnation, &request);
              constexpr bool resets = std::is_same_v<Request, v1::TrainerResetRequest>;
              if (!resets) Steer(source, "generation", kGeneration, &request);
              if constexpr (resets) SteerRanks(source, &request);
              SteerPaths(source, &request);
              Response response;
              (void)(methods_->*method)(nullptr, &request, &response);
              // Most resets are refused and change nothing. After one that failed later, another
              // one could make a group that looks like the first.
              lost_group_ = lost_group_ || !HasFirstGroup();
            }};
  }

  // Mostly a group that costs little: each rank has memory for what the ranks exchange, and a group
  // of several waits for the others.
  static void SteerRanks(ByteSource& source, v1::TrainerResetRequest* request) {
    if (source.Byte() < 0xE0) request->set_world_size(1 + source.Byte() % 2);
  }

  // Paths that the service lets through, for a made text almost never is one.
  void SteerPaths(ByteSource& source, google::protobuf::Message* message) {
    const std::string paths[] = {Path("saved"), SmallestModelDir(), Path("group.sock"),
                                 Path("saved") + "/../saved", ""};
    for (const char* field : {"rendezvous", "checkpoint_dir", "directory", "hf_checkpoint"}) {
      const auto* found = message->GetDescriptor()->FindFieldByName(field);
      if (found == nullptr) continue;
      const size_t path = source.Byte() % 8;
      if (path >= std::size(paths)) continue;
      message->GetReflection()->SetString(message, found, paths[path]);
    }
  }
  std::string Path(const std::string& name) const { return (dir_.path() / name).string(); }

  const testing::TempDir dir_;
  TwoSamples samples_;
  std::unique_ptr<Trainer> trainer_;
  EngineThread engine_{"trainer"};
  // Shutdown is the process's to obey.
  const std::unique_ptr<TrainerService> service_ =
      TrainerService::Create([] {}, [](const absl::Status&) {});
  Service* methods_ = nullptr;
  bool lost_group_ = false;
  const CallTable calls_{v1::TrainerResetRequest::descriptor()->file(), MakeCalls()};
};

}  // namespace
}  // namespace tandem::fuzz

TANDEM_FUZZ_TARGET(rpc_trainer) {
  tandem::fuzz::FeedCalls(input, tandem::fuzz::KeptWhileNew<tandem::fuzz::TrainerRank>());
}
