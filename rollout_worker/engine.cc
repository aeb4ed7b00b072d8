#include "rollout_worker/engine.h"

#include <utility>

#include "common/base/cores.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/ops/cpu/thread_pool.h"

namespace tandem {
namespace {

// How often an open update looks whether its trainer still lives.
constexpr std::chrono::milliseconds kPeerPoll{200};

absl::Status Stopping() { return absl::UnavailableError("this rollout worker is stopping"); }

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine);
  TANDEM_RETURN_IF_ERROR(engine->Build(options));
  engine->Publish("start");
  engine->thread_ = NamedThread("engine", [raw = engine.get(), cores = options.cores] {
    if (!cores.empty()) PinThisThread(cores.front());
    raw->Loop();
  });
  return engine;
}

absl::Status Engine::Build(const EngineOptions& options) {
  const GeneratorOptions& generator = options.generator;
  const auto pool = std::make_shared<ThreadPool>(options.threads, options.cores);
  TANDEM_ASSIGN_OR_RETURN(auto ops, CreateCpuForwardOps(options.dtype, pool));
  TANDEM_ASSIGN_OR_RETURN(
      runner_, ModelRunner::Create(options.spec, std::move(ops), generator.vocab_limit,
                                   generator.max_model_len,
                                   generator.scheduler.max_num_batched_tokens, &ledger_));
  TANDEM_ASSIGN_OR_RETURN(weights_, WeightStorage::Create(&runner_->layout(), &ledger_));
  int64_t blocks = options.kv_blocks;
  if (blocks == 0) {
    TANDEM_ASSIGN_OR_RETURN(
        blocks, PlanKvBlocks(options.spec, options.dtype,
                             {options.memory_utilization, options.device_bytes, weights_->bytes(),
                              generator.scheduler.max_num_seqs, generator.max_model_len}));
  }
  TANDEM_ASSIGN_OR_RETURN(kv_, KvCache::Create(options.spec, options.dtype, blocks, &ledger_));
  spdlog::info("KV pool: {} blocks of {} tokens, {:.1f} MiB beside {:.1f} MiB of weights", blocks,
               kKvBlockTokens, static_cast<double>(kv_->bytes()) / (1 << 20),
               static_cast<double>(weights_->bytes()) / (1 << 20));
  TANDEM_ASSIGN_OR_RETURN(receiver_, WeightReceiver::Create(&runner_->layout(), weights_->data(),
                                                            pool, options.receiver));
  pair_socket_ = receiver_->pair_socket();
  lifecycle_ =
      std::make_unique<Lifecycle>(weights_.get(), kv_.get(), runner_.get(), receiver_.get());
  generator_ = std::make_unique<Generator>(generator, runner_.get(), kv_.get());
  TANDEM_RETURN_IF_ERROR(lifecycle_->Start());
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
  } else if (lifecycle_->updating()) {
    command = queue_.PopFor(kPeerPoll);
    if (!command) {
      const absl::Status peer = lifecycle_->PollPeer();
      if (!peer.ok()) {
        spdlog::warn("weight update ended: {}", peer.ToString());
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
  generator_->Step(weights_->data(), lifecycle_->version());
  Publish("generate");
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
Result Engine::Call(const char* action, std::function<Result()> work, bool drained) {
  auto promise = std::make_shared<std::promise<Result>>();
  std::future<Result> result = promise->get_future();
  Command run = [this, action, promise, work = std::move(work)](const absl::Status& go) {
    FaultPoint(action);
    Result outcome = go.ok() ? work() : Result(go);
    // The state is published first: whoever got the reply may ask for the status at once.
    Publish(action);
    promise->set_value(std::move(outcome));
  };
  Command command = run;
  if (drained) {
    command = [this, action, run](const absl::Status& go) {
      if (!go.ok()) return run(go);
      const absl::Status drain = lifecycle_->Drain(generator_->has_work());
      if (!drain.ok()) return run(drain);
      Publish(action);
      drained_.push_back(run);
    };
  }
  if (!queue_.Push(std::move(command))) return Result(Stopping());
  return result.get();
}

absl::StatusOr<int64_t> Engine::Abort(std::vector<std::string> request_ids) {
  return Call<absl::StatusOr<int64_t>>(
      "abort", [&] { return generator_->Abort(request_ids); }, false);
}

absl::StatusOr<int64_t> Engine::Sleep(SleepOrder order) {
  return Call<absl::StatusOr<int64_t>>(
      "sleep",
      [&] {
        auto freed = lifecycle_->Sleep(order);
        FaultPoint("asleep");
        return freed;
      },
      true);
}

absl::StatusOr<int64_t> Engine::Wake(std::vector<std::string> tags) {
  return Call<absl::StatusOr<int64_t>>(
      "wake", [&] { return lifecycle_->Wake(tags); }, false);
}

absl::Status Engine::BeginUpdate(UpdateOpening opening) {
  return Call<absl::Status>(
      "begin update", [&] { return lifecycle_->BeginUpdate(opening); }, true);
}

absl::Status Engine::ApplyBucket(int64_t version,
                                 int64_t generation,
                                 int slot,
                                 std::vector<BucketEntry> entries) {
  return Call<absl::Status>(
      "apply bucket", [&] { return lifecycle_->ApplyBucket(version, generation, slot, entries); },
      false);
}

absl::Status Engine::CommitUpdate(int64_t version,
                                  int64_t generation,
                                  std::vector<Digest> digests) {
  return Call<absl::Status>(
      "commit update", [&] { return lifecycle_->CommitUpdate(version, generation, digests); },
      false);
}

absl::Status Engine::AbortUpdate(int64_t version, int64_t generation) {
  return Call<absl::Status>(
      "abort update", [&] { return lifecycle_->AbortUpdate(version, generation); }, false);
}

absl::StatusOr<std::vector<Digest>> Engine::Digests() {
  return Call<absl::StatusOr<std::vector<Digest>>>(
      "digests", [&] { return lifecycle_->Digests(); }, false);
}

absl::StatusOr<std::string> Engine::ReadTensor(std::string name, int64_t row, int64_t rows) {
  return Call<absl::StatusOr<std::string>>(
      "read tensor", [&] { return lifecycle_->ReadTensor(name, row, rows); }, false);
}

}  // namespace tandem
