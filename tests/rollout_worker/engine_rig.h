// An engine over a tiny model, its trainer's end in the same process, and a sink one can wait for.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/weights/peer_connection.h"
#include "rollout_worker/engine.h"
#include "tests/fakes/whole_tensors.h"
#include "tests/rollout_worker/tiny_rig.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem::testing {

inline constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

// Thread-safe; the test's thread waits for the end.
class WaitingSink final : public GenerationSink {
 public:
  void OnTokens(const TokenDelta&) override {
    const MutexLock lock(result_mutex_);
    ++tokens_;
    changed_.NotifyAll();
  }
  void OnFinished(const Sample& sample) override {
    const MutexLock lock(result_mutex_);
    result_.OnFinished(sample);
  }
  void OnEnd(const absl::Status& status) override {
    const MutexLock lock(result_mutex_);
    result_.OnEnd(status);
    changed_.NotifyAll();
  }
  bool cancelled() const override { return false; }

  // After the end; only then.
  const CollectingSink& Wait() {
    const MutexLock lock(result_mutex_);
    while (result_.ends == 0) changed_.Wait(result_mutex_);
    return result_;
  }
  void WaitForTokens(int64_t count) {
    const MutexLock lock(result_mutex_);
    while (tokens_ < count && result_.ends == 0) changed_.Wait(result_mutex_);
  }

 private:
  Mutex result_mutex_;
  ConditionVariable changed_;
  int64_t tokens_ ABSL_GUARDED_BY(result_mutex_) = 0;
  CollectingSink result_ ABSL_GUARDED_BY(result_mutex_);
};

// The calls that the service makes, without gRPC.
inline absl::StatusOr<int64_t> Wake(Engine& engine, const std::vector<std::string>& tags) {
  return engine.Run("wake", RunningRequests::kKeep,
                    [&](RolloutCore& core) { return core.memory.Wake(tags); });
}
inline absl::StatusOr<int64_t> Abort(Engine& engine, const std::vector<std::string>& ids) {
  return engine.Run("abort", RunningRequests::kKeep, [&](RolloutCore& core) {
    return absl::StatusOr<int64_t>(core.generator.Abort(ids));
  });
}
inline absl::Status BeginUpdate(Engine& engine, const UpdateRequest& request) {
  return engine.Run("begin update", RunningRequests::kDrain,
                    [&](RolloutCore& core) { return core.weights.Begin(request); });
}
inline absl::Status ApplyBucket(Engine& engine,
                                UpdateId id,
                                int slot,
                                const std::vector<BucketEntry>& entries) {
  return engine.Run("apply bucket", RunningRequests::kKeep,
                    [&](RolloutCore& core) { return core.weights.Apply(id, slot, entries); });
}
inline absl::Status CommitUpdate(Engine& engine, UpdateId id, const std::vector<Digest>& digests) {
  return engine.Run("commit update", RunningRequests::kKeep,
                    [&](RolloutCore& core) { return core.weights.Commit(id, digests); });
}
inline absl::Status AbortUpdate(Engine& engine, UpdateId id) {
  return engine.Run("abort update", RunningRequests::kKeep, [&](RolloutCore& core) {
    core.weights.Abort(id);
    return absl::OkStatus();
  });
}
inline absl::StatusOr<std::vector<Digest>> Digests(Engine& engine) {
  return engine.Run("digests", RunningRequests::kKeep,
                    [](RolloutCore& core) { return core.weights.Digests(); });
}
inline absl::StatusOr<std::string> ReadTensor(Engine& engine, const std::string& name) {
  return engine.Run("read tensor", RunningRequests::kKeep,
                    [&](RolloutCore& core) { return core.weights.ReadRows(name, 0, 1); });
}
inline absl::Status VerifyWeights(Engine& engine, int64_t version) {
  return engine.Run("verify weights", RunningRequests::kKeep,
                    [&](RolloutCore& core) { return core.Verify(version); });
}
// Addresses, for tests that damage memory or watch that it does not move.
struct EngineMemory {
  std::byte* weights = nullptr;
  std::byte* kv = nullptr;
  const RopeTable* rope = nullptr;
};
inline EngineMemory FindMemory(Engine& engine) {
  return engine
      .Run("find memory", RunningRequests::kKeep,
           [](RolloutCore& core) -> absl::StatusOr<EngineMemory> {
             return EngineMemory{core.memory.weights().data(),
                                 const_cast<std::byte*>(core.memory.kv().data()),
                                 &core.model.rope()};
           })
      .value();
}

// What a trainer with these weights would gather.
class StorageSource final : public WholeTensors {
 public:
  explicit StorageSource(const TinyWeights& weights) : weights_(weights) {}
  absl::StatusOr<const void*> Gather(const TensorPlace& place) override {
    const WeightLayout& layout = weights_.layout;
    buffer_.resize(static_cast<size_t>(place.rows() * place.cols()) * DTypeBytes(layout.dtype()));
    layout.ReadRows(weights_.region->data() + layout.group_offset(place.layer), place, 0,
                    place.rows(), buffer_.data());
    return static_cast<const void*>(buffer_.data());
  }
  absl::StatusOr<std::vector<Digest>> Digests() override {
    std::vector<Digest> digests;
    for (const TensorPlace& place : weights_.layout.places()) {
      TANDEM_ASSIGN_OR_RETURN(const void* rows, Gather(place));
      digests.push_back(DigestOf(rows, static_cast<int64_t>(buffer_.size())));
    }
    return digests;
  }

 private:
  const TinyWeights& weights_;
  std::vector<std::byte> buffer_;
};

// The trainer's calls, made directly on an engine.
class EngineUpdateClient final : public UpdateClient {
 public:
  explicit EngineUpdateClient(Engine* engine) : engine_(engine) {}
  absl::StatusOr<PeerConnection> Begin(const UpdateRequest& request,
                                       const ProducerSlots& slots) override {
    request_ = request;
    request_.scramble = scramble;
    TANDEM_RETURN_IF_ERROR(BeginUpdate(*engine_, request_));
    PeerConnection link;
    TANDEM_ASSIGN_OR_RETURN(link.socket,
                            PassSlots(engine_->pair_socket(), request.id.update_number, slots));
    return link;
  }
  absl::Status StartApply(int slot, const std::vector<BucketEntry>& entries) override {
    if (applied == fail_at) return Internal("told to fail");
    ++applied;
    applies_[slot] = ApplyBucket(*engine_, id(), slot, entries);
    return absl::OkStatus();
  }
  absl::Status WaitApply(int slot) override { return applies_[slot]; }
  absl::Status Commit(const std::vector<Digest>& digests) override {
    return CommitUpdate(*engine_, id(), digests);
  }
  absl::Status Abort(const std::string&) override { return AbortUpdate(*engine_, id()); }

  int applied = 0;
  int fail_at = -1;
  bool scramble = false;

 private:
  UpdateId id() const { return request_.id; }

  Engine* const engine_;
  UpdateRequest request_;
  std::map<int, absl::Status> applies_;
};

inline EngineOptions MakeEngineTestOptions(const TinyWeights& weights, const RigOptions& rig) {
  EngineOptions options;
  options.spec = weights.spec;
  options.model_dir = weights.dir.path().string();
  options.dtype = weights.layout.dtype();
  options.generator = MakeGeneratorOptions(rig);
  options.memory_utilization = 0.5;
  options.device_bytes = int64_t{1} << 30;
  options.updates.pair_socket = (weights.dir.path() / "pair.sock").string();
  return options;
}

inline absl::Status Publish(Engine& engine,
                            const TinyWeights& weights,
                            int64_t version,
                            bool scramble = false) {
  WeightPublisher publisher(&weights.layout, {64 << 10, 2, nullptr});
  EngineUpdateClient client(&engine);
  client.scramble = scramble;
  StorageSource source(weights);
  return publisher.Publish(version, source, &client).status();
}

inline SamplesById GenerateAll(Engine& engine, const std::vector<GenerationRequest>& requests) {
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (const GenerationRequest& request : requests) {
    sinks.push_back(std::make_shared<WaitingSink>());
    REQUIRE(engine.Generate(request, sinks.back()).ok());
  }
  SamplesById samples;
  for (const auto& sink : sinks) Collect(sink->Wait(), &samples);
  return samples;
}

// What these weights generate, by a generator without an engine.
inline SamplesById Expected(const TinyWeights& weights,
                            const std::vector<GenerationRequest>& requests) {
  Rig rig(weights, {});
  return GenerateAll(rig, requests);
}

// An engine, Empty, and the weights to sync it with.
struct EngineFixture {
  TinyWeights weights{{}, DType::kBFloat16};
  std::vector<GenerationRequest> requests = MixedRequests({5, 70, 64}, 3, 40);
  std::unique_ptr<Engine> engine = Make(false);

  std::unique_ptr<Engine> Make(bool load) {
    EngineOptions options = MakeEngineTestOptions(weights, {});
    options.load_weights = load;
    return Engine::Create(options).value();
  }
  RolloutState state() const { return engine->status().state; }
};

// How a single request ends.
inline absl::Status Try(Engine& engine, const GenerationRequest& request) {
  const auto sink = std::make_shared<WaitingSink>();
  TANDEM_RETURN_IF_ERROR(engine.Generate(request, sink));
  return sink->Wait().end;
}

}  // namespace tandem::testing
