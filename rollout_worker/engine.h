// The rollout's engine: one thread that owns all device state. Everybody else enqueues.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/backend/backend.h"
#include "common/base/bounded_queue.h"
#include "common/base/clock.h"
#include "common/device/ledger.h"
#include "common/model_spec/model_spec.h"
#include "common/process/threads.h"
#include "common/text/tokenizer.h"
#include "rollout_worker/generation/generator.h"
#include "rollout_worker/weights/rollout_memory.h"

namespace tandem {

struct EngineOptions {
  ModelSpec spec;
  std::string model_dir;
  bool load_weights = false;  // from model_dir, else Empty until the first sync
  DType dtype = DType::kBFloat16;
  // Where it computes; null: on the host, by `threads`.
  std::shared_ptr<Backend> backend;
  int threads = 1;
  std::vector<int> cores;  // of the threads, the engine thread's first; empty: not pinned
  GeneratorOptions generator;
  double memory_utilization = 0.5;  // share of the device for weights and KV
  int64_t device_bytes = 0;
  int64_t kv_blocks = 0;  // 0: as PlanKvBlocks says
  // How long Create waits where the device has no memory for what is proved at the start: that of a
  // worker that is started again beside its trainer's pass comes when the pass ends.
  absl::Duration wait_for_memory;
  Clock* clock = &RealClock();
  // Called on the engine thread when a step failed, or a call with IsDeviceLost: the worker is to
  // end. Maybe more than once.
  std::function<void(const absl::Status&)> device_lost;
  WeightReceiverOptions receiver;  // its ledger and transport are filled in
  std::string transport = "auto";  // weight_sync.transport
};

struct EngineStatus {
  RolloutState state = RolloutState::kEmpty;
  int64_t version = -1;
  GeneratorLoad load;
  std::string last_action;
};

// Thread-safe. Blocking calls wait for their turn on the engine thread. Unavailable: stopping.
class Engine {
 public:
  // Reserves memory, maps it on a host or if weights are to be loaded, loads them then, prints the
  // number of KV blocks, starts the thread. On a GPU an engine without weights begins with no
  // pages: Wake takes them, those of the weights before an update begins. Errors: PlanKvBlocks,
  // ModelRunner::Create, WeightStorage::LoadCheckpoint.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  ~Engine();

  // Enqueues and returns. Whatever happens later reaches the sink; a refusal here does not.
  // ResourceExhausted: the queue is full.
  absl::Status Generate(GenerationRequest request, std::shared_ptr<GenerationSink> sink);
  absl::StatusOr<int64_t> Abort(std::vector<std::string> request_ids);
  // These drain first: the gate closes at once, running requests finish (or are aborted, where the
  // order says so; an unknown level or tag is InvalidArgument and aborts nothing).
  absl::StatusOr<int64_t> Sleep(SleepOrder order);
  absl::Status BeginUpdate(UpdateOpening opening);
  absl::StatusOr<int64_t> Wake(std::vector<std::string> tags);
  absl::Status ApplyBucket(int64_t version,
                           int64_t generation,
                           int slot,
                           std::vector<BucketEntry> entries);
  absl::Status CommitUpdate(int64_t version, int64_t generation, std::vector<Digest> digests);
  absl::Status AbortUpdate(int64_t version, int64_t generation);
  absl::StatusOr<std::vector<Digest>> Digests();
  absl::StatusOr<std::string> ReadTensor(std::string name, int64_t row, int64_t rows);
  absl::Status VerifyWeights(int64_t version);

  // What follows never waits for the engine thread.
  EngineStatus status() const;
  Ledger& ledger() { return ledger_; }
  const WeightLayout& layout() const { return runner_->layout(); }
  const std::string& pair_socket() const { return pair_socket_; }
  std::string numerics_class() const { return runner_->ops().numerics_class(); }
  // What the device's backend decided when the engine was made.
  NumericsChoices numerics_choices() const { return backend_->numerics_choices(); }
  std::string kernel_set() const { return runner_->ops().kernel_set(); }
  const std::byte* weights_address() const { return weights_->data(); }
  const std::byte* kv_address() const { return kv_->data(); }
  const RopeTable& rope() const { return runner_->rope(); }

  // After Shutdown.
  const OpCounts& op_counts() const { return runner_->ops().counts(); }

  // Refuses new work, fails what is open with Unavailable, joins. Idempotent.
  void Shutdown();

 private:
  // Runs with OK on the engine thread, or with the reason why it cannot run any more.
  using Command = std::function<void(const absl::Status&)>;
  Engine() : queue_(kQueueCapacity) {}
  absl::Status Build(const EngineOptions& options);
  void Loop();
  // Executes what is queued; with nothing else to do, waits for more. False: closed.
  bool TakeCommands();
  void RunDrained();
  void Step();
  void EndIfLost(const absl::Status& status);
  void StopAll();
  void Publish(const std::string& action);
  // What becomes of running requests before a command: they go on, finish, or are aborted. After
  // the latter two the gate is closed.
  enum class First { kNothing, kDrain, kAbort };
  // Enqueues `work` and waits for its result.
  template <typename Result>
  Result Call(const char* action, std::function<Result()> work, First first);

  static constexpr size_t kQueueCapacity = 4096;
  Ledger ledger_;
  std::function<void(const absl::Status&)> device_lost_;
  std::shared_ptr<Backend> backend_;  // outlives what it made
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<WeightStorage> weights_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<WeightReceiver> receiver_;
  std::unique_ptr<Lifecycle> lifecycle_;
  std::unique_ptr<Generator> generator_;
  std::string pair_socket_;

  BoundedQueue<Command> queue_;
  std::vector<Command> drained_;  // wait until nothing runs; the engine thread's
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;  // status_
  EngineStatus status_;
  NamedThread thread_;
};

}  // namespace tandem
