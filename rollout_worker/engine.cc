#include "rollout_worker/engine.h"

#include <future>

#include "common/backend/cpu_backend.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/process/cores.h"
#include "common/process/fault_injection.h"

namespace tandem {
namespace {

// How often the engine checks that the trainer of an open update is alive.
constexpr std::chrono::milliseconds kPeerPoll{200};
constexpr absl::Duration kMemoryPoll = absl::Seconds(1);
// How often the clients of running requests hear that the engine works.
constexpr absl::Duration kAliveEvery = absl::Seconds(1);

absl::Status PrepareModel(Backend& backend, const EngineOptions& options) {
  const Instant deadline = options.clock->Now() + options.wait_for_memory;
  for (bool reported = false;; reported = true) {
    const absl::Status prepared =
        backend.PrepareModel(options.spec, options.generator.vocab_limit, ModelUse::kForward);
    if (!absl::IsResourceExhausted(prepared) || options.clock->Now() >= deadline) return prepared;
    if (!reported) {
      LogWarn("Waiting up to {} for device memory: {}",
              absl::FormatDuration(options.wait_for_memory), std::string(prepared.message()));
    }
    options.clock->Sleep(kMemoryPoll);
  }
}

absl::Status Stopping() { return absl::UnavailableError("this rollout worker is stopping"); }

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine);
  TANDEM_RETURN_IF_ERROR(engine->Build(options));
  engine->UpdateStatus("start");
  engine->thread_ = NamedThread("engine", [raw = engine.get(), cores = options.cores] {
    if (!cores.empty()) PinThisThread(cores.front());
    const absl::Status used = raw->backend_->device()->UseOnThisThread();
    // Cannot fail: the thread that created the device has used it already.
    TANDEM_CHECK(used.ok(), std::string(used.message()));
    raw->Loop();
  });
  return engine;
}

absl::Status Engine::Build(const EngineOptions& options) {
  const GeneratorOptions& generator = options.generator;
  device_lost_ = options.device_lost;
  clock_ = options.clock;
  alive_at_ = clock_->Now();
  backend_ = options.backend;
  if (backend_ == nullptr) {
    backend_ = MakeCpuBackend(std::make_shared<ThreadPool>(options.threads, options.cores));
  }
  Device* const device = backend_->device();
  ledger_.SetDriverReader([device] { return device->Memory(); });
  TANDEM_RETURN_IF_ERROR(backend_->CheckModel(options.spec));
  TANDEM_ASSIGN_OR_RETURN(auto ops, backend_->MakeForwardOps(options.dtype));
  TANDEM_RETURN_IF_ERROR(PrepareModel(*backend_, options));
  TANDEM_ASSIGN_OR_RETURN(
      runner_, ModelRunner::Create(device, options.spec, std::move(ops), generator.vocab_limit,
                                   generator.max_model_len,
                                   generator.scheduler.max_num_batched_tokens, &ledger_));
  TANDEM_RETURN_IF_ERROR(BuildMemory(options));
  TANDEM_RETURN_IF_ERROR(BuildUpdates(options));
  memory_ = std::make_unique<RolloutMemory>(&states_, weights_.get(), kv_.get(), runner_.get(),
                                            updates_.get());
  generator_ = std::make_unique<Generator>(generator, runner_.get(), kv_.get());
  core_.emplace(RolloutCore{*generator_, *memory_, *updates_, *runner_, states_});
  // A host allocates pages at first touch, a GPU when they are mapped. A worker that restarts while
  // its trainer runs a pass therefore maps no memory until its controller wakes it for a sync.
  if (device->is_host() || options.load_weights) TANDEM_RETURN_IF_ERROR(memory_->MapAll());
  if (!options.load_weights) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(
      weights_->LoadCheckpoint(options.model_dir, options.spec, updates_->transaction().storage()));
  return updates_->AdoptVersion(0);
}

absl::Status Engine::BuildMemory(const EngineOptions& options) {
  Device* const device = backend_->device();
  TANDEM_ASSIGN_OR_RETURN(weights_, WeightStorage::Create(device, &runner_->layout(), &ledger_));
  int64_t blocks = options.kv_blocks;
  if (blocks == 0) {
    TANDEM_ASSIGN_OR_RETURN(
        blocks,
        PlanKvBlocks(options.spec, options.dtype,
                     {options.memory_utilization, options.device_bytes, weights_->bytes(),
                      options.generator.scheduler.max_num_seqs, options.generator.max_model_len}));
  }
  TANDEM_ASSIGN_OR_RETURN(kv_,
                          KvCache::Create(device, options.spec, options.dtype, blocks, &ledger_));
  LogInfo("KV cache: {} blocks of {} tokens, {:.1f} MiB; weights: {:.1f} MiB", blocks,
          kKvBlockTokens, static_cast<double>(kv_->bytes()) / (1 << 20),
          static_cast<double>(weights_->bytes()) / (1 << 20));
  return absl::OkStatus();
}

absl::Status Engine::BuildUpdates(const EngineOptions& options) {
  WeightUpdatesOptions updates = options.updates;
  updates.ledger = &ledger_;
  updates.resident = weights_.get();
  TANDEM_ASSIGN_OR_RETURN(updates.transport, backend_->Transport(options.transport));
  TANDEM_ASSIGN_OR_RETURN(auto storage,
                          backend_->MakeStorageOps(&runner_->layout(), weights_->data()));
  TANDEM_ASSIGN_OR_RETURN(updates_, WeightUpdates::Create(std::move(storage), &states_, updates));
  return absl::OkStatus();
}

Engine::~Engine() { Shutdown(); }

void Engine::Shutdown() {
  // The queue is closed first, so that no command can be queued once the loop has ended.
  queue_.Close();
  stopping_ = true;
  thread_.Join();
}

void Engine::Loop() {
  while (TakeCommands()) {
    if (generator_->has_work()) Step();
    if (!generator_->has_work()) RunDrained();
  }
  StopAll();
}

bool Engine::TakeCommands() {
  std::optional<Command> command;
  if (generator_->has_work() || !drained_.empty()) {
    command = queue_.TryPop();
  } else if (updates_->needs_polling()) {
    command = queue_.PopFor(kPeerPoll);
    if (!command) PollTrainer();
  } else {
    command = queue_.Pop();
  }
  while (command && !stopping_) {
    (*command)(absl::OkStatus());
    command = queue_.TryPop();
  }
  if (command) (*command)(Stopping());
  return !stopping_;
}

void Engine::PollTrainer() {
  const absl::Status polled = updates_->Poll();
  StopIfDeviceLost(polled);
  if (polled.ok()) return;
  LogWarn("The weight update has ended: {}", polled.ToString());
  UpdateStatus("abort update");
}

void Engine::Step() {
  const WorkStep step("generation");
  FaultPoint("generate");
  const absl::Status done = generator_->Step(weights_->data(), updates_->version());
  if (!done.ok()) {
    // After any error but a lack of memory, the state of the device is unknown.
    const absl::Status end =
        absl::IsResourceExhausted(done)
            ? done
            : WithDeviceLost(Annotate(done, "the device cannot be used any more"));
    generator_->Fail(end);
    StopIfDeviceLost(end);
  }
  if (const Instant now = clock_->Now(); now - alive_at_ >= kAliveEvery) {
    generator_->SignalAlive();
    alive_at_ = now;
  }
  UpdateStatus("generate");
}

void Engine::StopIfDeviceLost(const absl::Status& status) {
  if (IsDeviceLost(status) && device_lost_) device_lost_(status);
}

void Engine::RunDrained() {
  std::vector<Command> ready;
  ready.swap(drained_);
  for (Command& command : ready) command(absl::OkStatus());
}

void Engine::StopAll() {
  generator_->Fail(Stopping());
  for (Command& command : drained_) command(Stopping());
  drained_.clear();
  while (auto command = queue_.TryPop()) (*command)(Stopping());
}

void Engine::UpdateStatus(const std::string& action) {
  EngineStatus now{states_.state(), updates_->version(), generator_->load(), action};
  const MutexLock lock(status_mutex_);
  status_ = std::move(now);
}

EngineStatus Engine::status() const {
  EngineStatus now;
  {
    const MutexLock lock(status_mutex_);
    now = status_;
  }
  now.load.queued = static_cast<int64_t>(queue_.Size());
  return now;
}

WorkerNumerics Engine::numerics() const {
  const ForwardOps& ops = runner_->ops();
  return {ops.numerics_class(), ops.kernel_set(), backend_->numerics_choices()};
}

absl::Status Engine::Generate(GenerationRequest request, std::shared_ptr<GenerationSink> sink) {
  auto shared = std::make_shared<GenerationRequest>(std::move(request));
  Command command = [this, shared, sink = std::move(sink)](const absl::Status& go) {
    absl::Status status = go;
    if (status.ok()) status = updates_->AdmitRequest(shared->version);
    shared->version = updates_->version();
    if (status.ok()) status = generator_->Submit(std::move(*shared), sink);
    if (!status.ok()) sink->OnEnd(status);
    UpdateStatus("submit");
  };
  if (queue_.TryPush(command)) return absl::OkStatus();
  if (stopping_) return Stopping();
  return MakeStatus(absl::StatusCode::kResourceExhausted,
                    "{} calls are queued at this rollout; try again later", kQueueCapacity);
}

absl::Status Engine::RunAndWait(const char* name,
                                RunningRequests running,
                                std::function<absl::Status(RolloutCore&)> work) {
  // The promise is shared, as the engine thread may still be inside set_value when the caller
  // returns.
  auto done = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> result = done->get_future();
  Command run = [this, name, done, work = std::move(work)](const absl::Status& go) {
    const WorkStep step(name);
    FaultPoint(name);
    absl::Status status = go.ok() ? work(*core_) : go;
    // The status is published before the result, as the caller may read it at once.
    UpdateStatus(name);
    StopIfDeviceLost(status);
    done->set_value(std::move(status));
  };
  Command command = run;
  if (running != RunningRequests::kKeep) {
    command = [this, name, run, running](const absl::Status& go) {
      if (!go.ok()) return run(go);
      states_.CloseAdmission();
      if (running == RunningRequests::kAbort) generator_->Abort({});
      UpdateStatus(name);
      drained_.push_back(run);
    };
  }
  if (!queue_.Push(std::move(command))) return Stopping();
  return result.get();
}

absl::Status RolloutCore::Verify(int64_t version) const {
  TANDEM_RETURN_IF_ERROR(weights.Verify(version));
  return model.VerifyTables();
}

absl::StatusOr<int64_t> Sleep(Engine& engine, const SleepOrder& order) {
  TANDEM_RETURN_IF_ERROR(CheckSleepOrder(order));
  return engine.Run("sleep",
                    order.abort_running ? RunningRequests::kAbort : RunningRequests::kDrain,
                    [&](RolloutCore& core) { return core.memory.Sleep(order); });
}

}  // namespace tandem
