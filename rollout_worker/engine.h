// The rollout's engine: one thread owns all device state, and other threads enqueue calls to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/backend/backend.h"
#include "common/base/bounded_queue.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/device/ledger.h"
#include "common/model_spec/model_spec.h"
#include "common/process/threads.h"
#include "common/types/numerics_choices.h"
#include "rollout_worker/generation/generator.h"
#include "rollout_worker/weights/rollout_memory.h"

namespace tandem {

struct EngineOptions {
  ModelSpec spec;
  std::string model_dir;
  // True: Create loads the checkpoint in `model_dir`; false: the state is Empty until the first
  // sync.
  bool load_weights = false;
  DType dtype = DType::kBFloat16;
  // Null: computes on the host with `threads`.
  std::shared_ptr<Backend> backend;
  int threads = 1;
  std::vector<int> cores;  // of the compute threads, the engine thread's first; empty: not pinned
  GeneratorOptions generator;
  double memory_utilization = 0.5;  // share of the device for weights and KV
  int64_t device_bytes = 0;
  int64_t kv_blocks = 0;  // 0: PlanKvBlocks decides
  // How long Create waits for the device memory that the start-up checks need. A worker that
  // restarts while its trainer runs a pass gets it when the pass ends.
  absl::Duration wait_for_memory;
  Clock* clock = &RealClock();
  // Called on the engine thread, perhaps more than once, when a step failed or a call returned
  // IsDeviceLost: the worker must exit.
  std::function<void(const absl::Status&)> device_lost;
  WeightUpdatesOptions updates;    // Create sets ledger, transport and resident
  std::string transport = "auto";  // weight_sync.transport
};

struct EngineStatus {
  RolloutState state = RolloutState::kEmpty;
  int64_t version = -1;
  GeneratorLoad load;
  std::string last_action;
};

// The objects that a call on the engine thread may use.
struct RolloutCore {
  Generator& generator;
  RolloutMemory& memory;
  WeightUpdates& weights;
  const ModelRunner& model;
  RolloutStates& states;
  // Checks that the data that a forward pass reads, apart from tokens and KV, is unchanged: the
  // weights of `version`, their padding and the rope tables. Errors: WeightUpdates::Verify,
  // ModelRunner::VerifyTables.
  absl::Status Verify(int64_t version) const;
};

// What happens to running requests before a call runs: kDrain waits for them, kAbort aborts them.
// Both close admission first, so that no request follows; the call itself decides whether to reopen
// it.
enum class RunningRequests { kKeep, kDrain, kAbort };

// Thread-safe.
class Engine {
 public:
  // Reserves memory, loads the weights if asked to, and starts the thread. Maps memory on a host,
  // or when it loads weights; on a GPU an engine without weights maps no memory until Wake. Errors:
  // PlanKvBlocks, ModelRunner::Create, WeightStorage::LoadCheckpoint.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  ~Engine();

  // Enqueues the request and returns. An error returned here does not reach the sink; later errors
  // reach only the sink. ResourceExhausted: the queue is full. Unavailable: the engine is stopping.
  absl::Status Generate(GenerationRequest request, std::shared_ptr<GenerationSink> sink);

  // Runs `work`, which returns absl::Status or absl::StatusOr<T>, on the engine thread and waits
  // for its result. `name` is the status's last_action and the fault point. Unavailable: the engine
  // is stopping, and `work` did not run.
  template <typename Work>
  std::invoke_result_t<Work, RolloutCore&> Run(const char* name,
                                               RunningRequests running,
                                               Work work) {
    std::optional<std::invoke_result_t<Work, RolloutCore&>> result;
    const absl::Status status = RunAndWait(name, running, [&](RolloutCore& core) {
      result = work(core);
      return ToStatus(*result);
    });
    if (!result) return status;
    return *std::move(result);
  }

  // The calls below never wait for the engine thread.
  EngineStatus status() const;
  // Its choices are those that the backend made when the engine was created.
  WorkerNumerics numerics() const;
  Ledger& ledger() { return ledger_; }
  const WeightLayout& layout() const { return runner_->layout(); }
  const std::string& pair_socket() const { return updates_->pair_socket(); }

  // Refuses new calls, fails open requests with Unavailable, joins the thread. Idempotent.
  void Shutdown();
  const OpCounts& op_counts() const { return runner_->ops().counts(); }  // only after Shutdown

 private:
  // Runs on the engine thread. The argument is OK, or the reason why the engine runs no more calls.
  using Command = std::function<void(const absl::Status&)>;

  Engine() : queue_(kQueueCapacity) {}
  absl::Status Build(const EngineOptions& options);
  absl::Status BuildMemory(const EngineOptions& options);
  absl::Status BuildUpdates(const EngineOptions& options);
  static const absl::Status& ToStatus(const absl::Status& status) { return status; }
  template <typename T>
  static const absl::Status& ToStatus(const absl::StatusOr<T>& result) {
    return result.status();
  }
  absl::Status RunAndWait(const char* name,
                          RunningRequests running,
                          std::function<absl::Status(RolloutCore&)> work);
  void Loop();
  // Executes the queued commands, waiting for one if there is no other work. Returns false when the
  // engine is stopping.
  bool TakeCommands();
  void PollTrainer();
  void RunDrained();
  void Step();
  void StopIfDeviceLost(const absl::Status& status);
  void StopAll();
  void UpdateStatus(const std::string& action);

  static constexpr size_t kQueueCapacity = 4096;
  Ledger ledger_;
  std::function<void(const absl::Status&)> device_lost_;
  Clock* clock_ = nullptr;
  Instant alive_at_;                  // when clients last heard that the engine works
  std::shared_ptr<Backend> backend_;  // outlives the objects that it made
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<WeightStorage> weights_;
  std::unique_ptr<KvCache> kv_;
  RolloutStates states_;
  std::unique_ptr<WeightUpdates> updates_;
  std::unique_ptr<RolloutMemory> memory_;
  std::unique_ptr<Generator> generator_;
  std::optional<RolloutCore> core_;

  BoundedQueue<Command> queue_;
  // Owned by the engine thread, which runs them once no request is running.
  std::vector<Command> drained_;
  std::atomic<bool> stopping_{false};
  mutable Mutex status_mutex_;
  EngineStatus status_ ABSL_GUARDED_BY(status_mutex_);
  NamedThread thread_;
};

// Drains or, if the order says so, aborts the running requests, and releases memory.
// InvalidArgument: an unknown level or tag; no request was ended. Other errors as
// RolloutMemory::Sleep.
absl::StatusOr<int64_t> Sleep(Engine& engine, const SleepOrder& order);

}  // namespace tandem
