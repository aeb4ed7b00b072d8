#include "rollout_worker/engine.h"

#include <utility>

#include "common/backend/cpu_backend.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/process/cores.h"
#include "common/process/fault_injection.h"

namespace tandem {
namespace {

// How often an open update looks whether its trainer still lives.
constexpr std::chrono::milliseconds kPeerPoll{200};

const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

// Between two looks whether the device has memory now.
constexpr absl::Duration kLookAgain = absl::Seconds(1);

absl::Status PrepareModel(Backend& backend, const EngineOptions& options) {
  const absl::Time deadline = options.clock->Now() + options.wait_for_memory;
  for (bool said = false;; said = true) {
    const absl::Status prepared =
        backend.PrepareModel(options.spec, options.generator.vocab_limit, ModelUse::kForward);
    if (!absl::IsResourceExhausted(prepared) || options.clock->Now() >= deadline) return prepared;
    if (!said) {
      LogWarn("waiting up to {} for memory of the device: {}",
              absl::FormatDuration(options.wait_for_memory), std::string(prepared.message()));
    }
    options.clock->Sleep(kLookAgain);
  }
}

absl::Status Stopping() { return absl::UnavailableError("this rollout worker is stopping"); }

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine);
  TANDEM_RETURN_IF_ERROR(engine->Build(options));
  engine->Publish("start");
  engine->thread_ = NamedThread("engine", [raw = engine.get(), cores = options.cores] {
    if (!cores.empty()) PinThisThread(cores.front());
    const absl::Status used = raw->backend_->device()->UseOnThisThread();
    // It was used by the thread that made it.
    TANDEM_CHECK(used.ok(), std::string(used.message()));
    raw->Loop();
  });
  return engine;
}

absl::Status Engine::Build(const EngineOptions& options) {
  const GeneratorOptions& generator = options.generator;
  device_lost_ = options.device_lost;
  backend_ = options.backend;
  if (backend_ == nullptr) {
    backend_ = MakeCpuBackend(std::make_shared<ThreadPool>(options.threads, options.cores));
  }
  Device* const device = backend_->device();
  ledger_.AskDriver([device] { return device->Memory(); });
  TANDEM_RETURN_IF_ERROR(backend_->CheckModel(options.spec));
  TANDEM_ASSIGN_OR_RETURN(auto ops, backend_->MakeForwardOps(options.dtype));
  TANDEM_RETURN_IF_ERROR(PrepareModel(*backend_, options));
  TANDEM_ASSIGN_OR_RETURN(
      runner_, ModelRunner::Create(device, options.spec, std::move(ops), generator.vocab_limit,
                                   generator.max_model_len,
                                   generator.scheduler.max_num_batched_tokens, &ledger_));
  TANDEM_ASSIGN_OR_RETURN(weights_, WeightStorage::Create(device, &runner_->layout(), &ledger_));
  int64_t blocks = options.kv_blocks;
  if (blocks == 0) {
    TANDEM_ASSIGN_OR_RETURN(
        blocks, PlanKvBlocks(options.spec, options.dtype,
                             {options.memory_utilization, options.device_bytes, weights_->bytes(),
                              generator.scheduler.max_num_seqs, generator.max_model_len}));
  }
  TANDEM_ASSIGN_OR_RETURN(kv_,
                          KvCache::Create(device, options.spec, options.dtype, blocks, &ledger_));
  LogInfo("KV pool: {} blocks of {} tokens, {:.1f} MiB beside {:.1f} MiB of weights", blocks,
          kKvBlockTokens, static_cast<double>(kv_->bytes()) / (1 << 20),
          static_cast<double>(weights_->bytes()) / (1 << 20));
  WeightReceiverOptions receiver = options.receiver;
  receiver.ledger = &ledger_;
  TANDEM_ASSIGN_OR_RETURN(receiver.transport, backend_->Transport(options.transport));
  TANDEM_ASSIGN_OR_RETURN(auto storage,
                          backend_->MakeStorageOps(&runner_->layout(), weights_->data()));
  TANDEM_ASSIGN_OR_RETURN(receiver_, WeightReceiver::Create(std::move(storage), receiver));
  pair_socket_ = receiver_->pair_socket();
  lifecycle_ =
      std::make_unique<Lifecycle>(weights_.get(), kv_.get(), runner_.get(), receiver_.get());
  generator_ = std::make_unique<Generator>(generator, runner_.get(), kv_.get());
  // A host's pages come at first touch, a GPU's when they are mapped: a worker that is started
  // again beside a trainer in its pass takes nothing before its controller wakes it for a sync.
  if (device->is_host() || options.load_weights) TANDEM_RETURN_IF_ERROR(lifecycle_->Start());
  if (!options.load_weights) return absl::OkStatus();
  return lifecycle_->LoadCheckpoint(options.model_dir, options.spec);
}

Engine::~Engine() { Shutdown(); }

void Engine::Shutdown() {
  // In this order: nothing can be queued any more once the loop leaves.
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
  } else if (lifecycle_->updating() || lifecycle_->receiver().holds_slots()) {
    command = queue_.PopFor(kPeerPoll);
    if (!command) {
      const absl::Status peer = lifecycle_->PollPeer();
      EndIfLost(peer);
      if (!peer.ok()) {
        LogWarn("weight update ended: {}", peer.ToString());
        Publish("abort update");
      }
    }
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

void Engine::Step() {
  FaultPoint("generate");
  const absl::Status done = generator_->Step(weights_->data(), lifecycle_->version());
  if (!done.ok()) {
    // But for memory that was short, the device's state is not known any more.
    const absl::Status end =
        absl::IsResourceExhausted(done)
            ? done
            : WithDeviceLost(Annotate(done, "the device can compute nothing any more"));
    generator_->Fail(end);
    EndIfLost(end);
  }
  Publish("generate");
}

void Engine::EndIfLost(const absl::Status& status) {
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

void Engine::Publish(const std::string& action) {
  EngineStatus now{lifecycle_->state(), lifecycle_->version(), generator_->load(), action};
  std::lock_guard lock(mutex_);
  status_ = std::move(now);
}

EngineStatus Engine::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

absl::Status Engine::Generate(GenerationRequest request, std::shared_ptr<GenerationSink> sink) {
  auto shared = std::make_shared<GenerationRequest>(std::move(request));
  Command command = [this, shared, sink = std::move(sink)](const absl::Status& go) {
    absl::Status status = go;
    if (status.ok()) status = lifecycle_->AdmitRequest(shared->version);
    shared->version = lifecycle_->version();
    if (status.ok()) status = generator_->Submit(std::move(*shared), sink);
    if (!status.ok()) sink->OnEnd(status);
    Publish("submit");
  };
  if (queue_.TryPush(command)) return absl::OkStatus();
  if (stopping_) return Stopping();
  return MakeStatus(absl::StatusCode::kResourceExhausted,
                    "{} calls wait for this rollout already; try again later", kQueueCapacity);
}

template <typename Result>
Result Engine::Call(const char* action, std::function<Result()> work, First first) {
  auto promise = std::make_shared<std::promise<Result>>();
  std::future<Result> result = promise->get_future();
  Command run = [this, action, promise, work = std::move(work)](const absl::Status& go) {
    FaultPoint(action);
    Result outcome = go.ok() ? work() : Result(go);
    // The state is published first: whoever got the reply may ask for the status at once.
    Publish(action);
    EndIfLost(StatusOf(outcome));
    promise->set_value(std::move(outcome));
  };
  Command command = run;
  if (first != First::kNothing) {
    command = [this, action, run, first](const absl::Status& go) {
      if (!go.ok()) return run(go);
      const absl::Status drain = lifecycle_->Drain(generator_->has_work());
      if (!drain.ok()) return run(drain);
      // The gate is closed: nothing comes after these.
      if (first == First::kAbort) generator_->Abort({});
      Publish(action);
      drained_.push_back(run);
    };
  }
  if (!queue_.Push(std::move(command))) return Result(Stopping());
  return result.get();
}

absl::StatusOr<int64_t> Engine::Abort(std::vector<std::string> request_ids) {
  return Call<absl::StatusOr<int64_t>>(
      "abort", [&] { return generator_->Abort(request_ids); }, First::kNothing);
}

absl::StatusOr<int64_t> Engine::Sleep(SleepOrder order) {
  TANDEM_RETURN_IF_ERROR(CheckSleepOrder(order));
  return Call<absl::StatusOr<int64_t>>(
      "sleep",
      [&] {
        auto freed = lifecycle_->Sleep(order);
        FaultPoint("asleep");
        return freed;
      },
      order.abort_running ? First::kAbort : First::kDrain);
}

absl::StatusOr<int64_t> Engine::Wake(std::vector<std::string> tags) {
  return Call<absl::StatusOr<int64_t>>(
      "wake", [&] { return lifecycle_->Wake(tags); }, First::kNothing);
}

absl::Status Engine::BeginUpdate(UpdateOpening opening) {
  return Call<absl::Status>(
      "begin update", [&] { return lifecycle_->BeginUpdate(opening); }, First::kDrain);
}

absl::Status Engine::ApplyBucket(int64_t version,
                                 int64_t generation,
                                 int slot,
                                 std::vector<BucketEntry> entries) {
  return Call<absl::Status>(
      "apply bucket", [&] { return lifecycle_->ApplyBucket(version, generation, slot, entries); },
      First::kNothing);
}

absl::Status Engine::CommitUpdate(int64_t version,
                                  int64_t generation,
                                  std::vector<Digest> digests) {
  return Call<absl::Status>(
      "commit update", [&] { return lifecycle_->CommitUpdate(version, generation, digests); },
      First::kNothing);
}

absl::Status Engine::AbortUpdate(int64_t version, int64_t generation) {
  return Call<absl::Status>(
      "abort update", [&] { return lifecycle_->AbortUpdate(version, generation); },
      First::kNothing);
}

absl::StatusOr<std::vector<Digest>> Engine::Digests() {
  return Call<absl::StatusOr<std::vector<Digest>>>(
      "digests", [&] { return lifecycle_->Digests(); }, First::kNothing);
}

absl::StatusOr<std::string> Engine::ReadTensor(std::string name, int64_t row, int64_t rows) {
  return Call<absl::StatusOr<std::string>>(
      "read tensor", [&] { return lifecycle_->ReadTensor(name, row, rows); }, First::kNothing);
}

absl::Status Engine::VerifyWeights(int64_t version) {
  return Call<absl::Status>(
      "verify weights", [&] { return lifecycle_->Verify(version); }, First::kNothing);
}

}  // namespace tandem
