// Every request that a rollout worker serves, to its service around an engine with a tiny model.
// The input is a sequence of calls: which one, then its message. Generate goes over gRPC, as its
// streams can be made by nothing else, and runs on while the next calls arrive.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <absl/time/time.h>

#include "common/base/log.h"
#include "common/net/update_codec.h"
#include "common/weights/digest.h"
#include "common/weights/manifest.h"
#include "common/weights/peer_connection.h"
#include "common/weights/weight_transport.h"
#include "rollout_worker/engine.h"
#include "rollout_worker/rollout_service.h"
#include "tandem/v1/rollout.grpc.pb.h"
#include "tests/fuzz/call_table.h"
#include "tests/fuzz/in_process_server.h"
#include "tests/fuzz/message_builder.h"
#include "tests/fuzz/smallest_model.h"
#include "tests/fuzz/target.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace tandem::fuzz {
namespace {

template <typename T>
T Need(absl::StatusOr<T> made) {
  if (!made.ok()) throw std::runtime_error(made.status().ToString());
  return *std::move(made);
}

class Rollout {
 public:
  Rollout() {
    SetLogLevel(LogLevel::kError);  // a line for each refused call would take longer than the call
    EngineOptions options;
    options.spec = TinyModelSpec(SmallestModel());
    options.model_dir = SmallestModelDir();
    options.load_weights = true;
    options.generator.scheduler = {.max_num_seqs = 4, .max_num_batched_tokens = 32};
    options.generator.max_model_len = 48;
    options.generator.vocab_limit = testing::TinyTokenizerSize();
    options.generator.eos_token_ids = {testing::TinyEosTokenId()};
    options.device_bytes = int64_t{1} << 30;
    options.kv_blocks = 24;
    options.updates.pair_socket = (dir_.path() / "pair.sock").string();
    options.updates.slots_timeout = absl::ZeroDuration();
    engine_ = Need(Engine::Create(options));
    v1::WorkerId worker;
    worker.set_role(v1::ROLE_ROLLOUT);
    worker.set_incarnation(kIncarnation);
    service_->SetReady(engine_.get(), worker);
    // Its methods are those of the generated class, under which gRPC knows it too.
    methods_ = static_cast<Service*>(service_->service());
    server_ = std::make_unique<InProcessServer>(service_->service());
    stub_ = v1::RolloutService::NewStub(server_->channel());
  }
  ~Rollout() {
    EndStreams();
    engine_->Shutdown();
  }

  void Call(ByteSource& source) const { calls_.CallOne(source); }
  // No request runs when the next input begins.
  void EndStreams() {
    v1::GenerateEvent event;
    for (Stream& stream : streams_) {
      while (stream.reader->Read(&event)) {
      }
      (void)stream.reader->Finish();
    }
    streams_.clear();
  }
  // Whether it is as it was at first.
  bool IsNew() const {
    const EngineStatus now = engine_->status();
    return !changed_ && now.state == RolloutState::kServing && now.version == 0;
  }

 private:
  struct Stream {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>> reader;
  };
  using Service = v1::RolloutService::Service;
  using Calls = std::vector<CallTable::Entry>;

  static constexpr int64_t kIncarnation = 7;
  static constexpr int64_t kMostSlotBytes = 1 << 20;  // that are passed, as a trainer does

  Calls MakeCalls() {
    return {{"RolloutService.Generate", [this](ByteSource& source) { Generate(source); }},
            Unary("RolloutService.Abort", &Service::Abort),
            Unary("RolloutService.Sleep", &Service::Sleep),
            Unary("RolloutService.Wake", &Service::Wake),
            {"RolloutService.BeginUpdate", [this](ByteSource& source) { BeginUpdate(source); }},
            {"RolloutService.ApplyBucket", [this](ByteSource& source) { ApplyBucket(source); }},
            {"RolloutService.CommitUpdate", [this](ByteSource& source) { CommitUpdate(source); }},
            Unary("RolloutService.AbortUpdate", &Service::AbortUpdate),
            Unary("RolloutService.GetDigests", &Service::GetDigests),
            Unary("RolloutService.VerifyWeights", &Service::VerifyWeights),
            {"RolloutService.ReadTensor", [this](ByteSource& source) { ReadTensor(source); }},
            Unary("RolloutService.GetStatus", &Service::GetStatus),
            Unary("RolloutService.Shutdown", &Service::Shutdown)};
  }

  template <typename Request>
  static Request Steered(ByteSource& source) {
    auto request = Made<Request>(source);
    Steer(source, "incarnation", kIncarnation, &request);
    return request;
  }
  template <typename Request, typename Response>
  CallTable::Entry Unary(const std::string& name,
                         grpc::Status (Service::*method)(grpc::ServerContext*,
                                                         const Request*,
                                                         Response*)) {
    return {name, [this, method](ByteSource& source) {
              const auto request = Steered<Request>(source);
              Response response;
              (void)(methods_->*method)(nullptr, &request, &response);
            }};
  }

  void Generate(ByteSource& source) {
    Stream stream{std::make_unique<grpc::ClientContext>(), nullptr};
    stream.reader = stub_->Generate(stream.context.get(), Steered<v1::GenerateRequest>(source));
    streams_.push_back(std::move(stream));
  }

  // Mostly with the manifest of this model, and then the slots follow, as the trainer passes them.
  void BeginUpdate(ByteSource& source) {
    auto request = Steered<v1::BeginUpdateRequest>(source);
    if (source.Byte() < 0xE0) {
      request.clear_manifest();
      ToProto(ManifestOf(engine_->layout()), request.mutable_manifest());
      // A large one would shut out all updates that follow.
      request.clear_group_generation();
    }
    v1::BeginUpdateResponse response;
    const bool begun = methods_->BeginUpdate(nullptr, &request, &response).ok();
    changed_ = changed_ || begun;
    const SlotShape shape = {request.slot_bytes(), request.slots(), request.direct()};
    if (!begun || shape.slots > 8 || shape.slot_bytes > kMostSlotBytes) return;
    const auto slots = HostTransport()->Create(shape, SlotLife::kOneUpdate, nullptr);
    if (!slots.ok()) return;
    auto passed = PassSlots(response.pair_socket(), request.generation(), **slots);
    if (passed.ok()) trainer_end_ = *std::move(passed);
  }

  // Every row of every tensor, which no made entries are, or what was made.
  void ApplyBucket(ByteSource& source) {
    auto request = Steered<v1::ApplyBucketRequest>(source);
    if (source.Byte() % 4 == 1) {
      request.clear_entries();
      const Manifest manifest = ManifestOf(engine_->layout());
      for (size_t t = 0; t < manifest.size(); ++t) {
        v1::BucketEntry& entry = *request.add_entries();
        entry.set_tensor(static_cast<int32_t>(t));
        entry.set_rows(manifest[t].rows());
      }
    }
    v1::ApplyBucketResponse response;
    (void)methods_->ApplyBucket(nullptr, &request, &response);
  }

  // The digests of the zeros that the slots hold, or what was made.
  void CommitUpdate(ByteSource& source) {
    auto request = Steered<v1::CommitUpdateRequest>(source);
    if (source.Byte() % 4 == 1) {
      std::vector<Digest> digests;
      for (const ManifestTensor& tensor : ManifestOf(engine_->layout())) {
        const std::vector<std::byte> zeros(static_cast<size_t>(tensor.bytes()));
        digests.push_back(DigestOf(zeros.data(), tensor.bytes()));
      }
      request.clear_digests();
      ToProto(digests, request.mutable_digests());
    }
    v1::CommitUpdateResponse response;
    (void)methods_->CommitUpdate(nullptr, &request, &response);
  }

  void ReadTensor(ByteSource& source) {
    auto request = Steered<v1::ReadTensorRequest>(source);
    const auto& places = engine_->layout().places();
    const size_t place = source.Byte();
    if (place < places.size()) request.set_name(places[place].name);
    v1::ReadTensorResponse response;
    (void)methods_->ReadTensor(nullptr, &request, &response);
  }

  const testing::TempDir dir_;
  std::unique_ptr<Engine> engine_;
  // Shutdown is the process's to obey.
  const std::unique_ptr<RolloutService> service_ = RolloutService::Create([] {});
  Service* methods_ = nullptr;
  std::unique_ptr<InProcessServer> server_;
  std::unique_ptr<v1::RolloutService::Stub> stub_;
  std::vector<Stream> streams_;
  UniqueFd trainer_end_;
  bool changed_ = false;  // an update was open
  const CallTable calls_{v1::GenerateRequest::descriptor()->file(), MakeCalls()};
};

}  // namespace
}  // namespace tandem::fuzz

TANDEM_FUZZ_TARGET(rpc_rollout) {
  auto& rollout = tandem::fuzz::KeptWhileNew<tandem::fuzz::Rollout>();
  tandem::fuzz::FeedCalls(input, rollout);
  rollout.EndStreams();
}
