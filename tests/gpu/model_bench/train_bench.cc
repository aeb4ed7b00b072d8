#include "tests/gpu/model_bench/train_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <vector>

#include "common/base/philox.h"
#include "common/base/status.h"
#include "common/memory/worker_memory.h"
#include "tests/gpu/model_bench/random_weights.h"
#include "tests/gpu/model_bench/stopwatch.h"
#include "tests/support/temp_dir.h"
#include "trainer_worker/training_session.h"

namespace tandem::testing {
namespace {

constexpr DType kBf16 = DType::kBFloat16;

// A session of one rank and what it outlives. Members end bottom up.
struct BenchTrainer {
  TempDir model_dir;  // with the model's config alone
  Ledger ledger;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<ForwardOps> forward;
  std::unique_ptr<BackwardOps> backward;
  std::unique_ptr<ShardOps> shard;
  std::unique_ptr<TrainingSession> session;
};

int64_t SampleTokens(const BenchModel& model) { return model.train_prompt + model.train_response; }

SessionOptions OptionsOf(const BenchGpu& gpu,
                         const BenchModel& model,
                         const std::string& model_dir) {
  SessionOptions options;
  options.model_dir = model_dir;
  options.vocab_limit = model.vocab_limit;
  options.max_sequence_tokens = SampleTokens(model);
  options.max_micro_batch_tokens = model.micro_batch;
  // No rollout: the trainer may keep all it has.
  options.device_bytes = gpu.info.total_bytes;
  options.kept_bytes = gpu.info.total_bytes;
  options.offload_dir = model_dir;
  options.optimizer.schedule.lr = 1e-3;  // that bf16 shows it
  return options;
}

// The least: backward runs every layer's forward again.
int64_t LeastBytes(const BenchModel& model) {
  const BatchShape shape{.rows = model.micro_batch,
                         .scored = model.micro_batch,
                         .kv_blocks = model.micro_batch / kKvBlockTokens + model.train_samples};
  return TrainerBytes(model.spec, {}).device_bytes() +
         PlaceMicroBatch(model.spec, 2, shape, Keep::kLayerInputs).end;
}

// The masters, their rounding and digests.
absl::Status FillMasters(Device* device, TrainingSession& session) {
  const ShardPlan& plan = session.plan();
  ParameterShard& shard = session.shard();
  TANDEM_ASSIGN_OR_RETURN(const auto numbers,
                          RandomNumbers::Create(device, plan.layout(), DType::kFloat32));
  constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    const ShardPlan::Piece& piece = plan.mine(tensor);
    const bool norm = IsNorm(*plan.tensors()[tensor]);
    const int64_t most = norm ? piece.elements : numbers->most();
    for (int64_t done = 0; done < piece.elements; done += most) {
      const int64_t count = std::min(most, piece.elements - done);
      device->Copy(shard.master() + piece.offset + done,
                   norm ? numbers->Ones() : numbers->Next(count), count * kFloatBytes);
    }
    TANDEM_RETURN_IF_ERROR(shard.MastersWritten(piece.offset, piece.elements));
  }
  TANDEM_RETURN_IF_ERROR(session.WeightsChanged());
  return device->Synchronize();
}

absl::StatusOr<std::unique_ptr<BenchTrainer>> MakeTrainer(const BenchGpu& gpu,
                                                          const BenchModel& model) {
  auto trainer = std::make_unique<BenchTrainer>();
  const std::string directory = trainer->model_dir.path().string();
  std::ofstream(directory + "/config.json") << ModelConfigJson(model.spec);
  Backend& backend = *gpu.backend;
  TANDEM_RETURN_IF_ERROR(backend.PrepareModel(model.spec, model.vocab_limit, ModelUse::kTraining));
  SessionOptions options = OptionsOf(gpu, model, directory);
  TANDEM_ASSIGN_OR_RETURN(options.publish.transport, backend.Transport("auto"));
  TANDEM_ASSIGN_OR_RETURN(
      trainer->communicator,
      backend.JoinGroup({.world_size = 1, .rendezvous = directory + "/group.sock"}));
  TANDEM_ASSIGN_OR_RETURN(trainer->forward, backend.MakeForwardOps(kBf16));
  TANDEM_ASSIGN_OR_RETURN(trainer->backward, backend.MakeBackwardOps(kBf16));
  TANDEM_ASSIGN_OR_RETURN(trainer->shard, backend.MakeShardOps());
  TANDEM_ASSIGN_OR_RETURN(trainer->session,
                          TrainingSession::Create(options,
                                                  {.device = gpu.device(),
                                                   .forward = trainer->forward.get(),
                                                   .backward = trainer->backward.get(),
                                                   .shard = trainer->shard.get()},
                                                  trainer->communicator.get(), &trainer->ledger));
  TANDEM_RETURN_IF_ERROR(FillMasters(gpu.device(), *trainer->session));
  return trainer;
}

std::vector<Sample> RandomSamples(const BenchModel& model) {
  std::vector<Sample> samples(static_cast<size_t>(model.train_samples));
  for (size_t i = 0; i < samples.size(); ++i) {
    Sample& sample = samples[i];
    sample.sample_id = MakeSampleId(i, 0, 0);
    sample.prompt_tokens = model.train_prompt;
    for (int64_t t = 0; t < SampleTokens(model); ++t) {
      const uint32_t word = RandomWords(3, i, static_cast<uint64_t>(t))[0];
      sample.tokens.push_back(static_cast<int32_t>(word % model.vocab_limit));
    }
    const auto response = static_cast<size_t>(model.train_response);
    sample.segments = {{0, model.train_prompt, false, 0},
                       {model.train_prompt, model.train_response, true, 0}};
    // About what a token has under weights that nobody trained.
    sample.log_probs.assign(response, -std::log(static_cast<float>(model.vocab_limit)));
    sample.versions.assign(response, 0);
    sample.advantages.assign(response, i % 2 == 0 ? 1.0f : -1.0f);
  }
  return samples;
}

// The last token of a sample is scored and goes through no layer.
ForwardWork WorkOf(const BenchModel& model) {
  const int64_t rows = SampleTokens(model) - 1;
  return {.rows = model.train_samples * rows,
          .scored = model.train_samples * model.train_response,
          .pairs = model.train_samples * CausalPairs(rows)};
}

struct StepSeconds {
  double forward = 0, backward = 0, optimizer = 0;
  bool recompute = false;

  double whole() const { return forward + backward + optimizer; }
};

absl::StatusOr<StepSeconds> Update(Device* device,
                                   const BenchModel& model,
                                   TrainingSession& session,
                                   const std::vector<Sample>& samples) {
  MiniBatchRequest request;
  request.global_tokens = static_cast<double>(model.train_samples * model.train_response);
  request.global_samples = static_cast<double>(model.train_samples);
  const Stopwatch watch;
  TANDEM_ASSIGN_OR_RETURN(const MiniBatchReport batch, session.Train(request, samples));
  // Else the time of the last backward passes would be the optimizer's, which waits for them.
  TANDEM_RETURN_IF_ERROR(device->Synchronize());
  const double passes = watch.Seconds();
  TANDEM_ASSIGN_OR_RETURN(const OptimizerReport step, session.Step());
  const double whole = watch.Seconds();
  if (batch.tokens != WorkOf(model).rows) {
    return Internal("{} rows were trained, not {}", batch.tokens, WorkOf(model).rows);
  }
  if (step.skipped || !(step.grad_norm > 0) || step.changed == 0) {
    return Internal("{}: a step with a gradient norm of {} changed {} weights", model.name,
                    step.grad_norm, step.changed);
  }
  return StepSeconds{batch.forward_seconds, passes - batch.forward_seconds, whole - passes,
                     batch.recompute};
}

}  // namespace

absl::Status BenchTraining(const BenchGpu& gpu, const BenchModel& model, Figures& figures) {
  const std::string tokens = fmt::format("train_{}_tokens", model.name);
  const std::string mfu = fmt::format("mfu_{}_percent", model.name);
  const absl::Status fits = CheckFits(
      gpu, fmt::format("training {} with {} tokens at once", model.name, model.micro_batch),
      LeastBytes(model));
  if (!fits.ok()) {
    for (const std::string& name : {tokens, mfu}) figures.NotRun(name, std::string(fits.message()));
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(const auto trainer, MakeTrainer(gpu, model));
  const std::vector<Sample> samples = RandomSamples(model);
  for (int64_t i = 0; i < model.warm_updates; ++i) {
    TANDEM_RETURN_IF_ERROR(Update(gpu.device(), model, *trainer->session, samples).status());
  }
  StepSeconds sum;
  for (int64_t i = 0; i < model.timed_updates; ++i) {
    TANDEM_ASSIGN_OR_RETURN(const StepSeconds step,
                            Update(gpu.device(), model, *trainer->session, samples));
    sum = {sum.forward + step.forward, sum.backward + step.backward, sum.optimizer + step.optimizer,
           step.recompute};
  }
  const auto updates = static_cast<double>(model.timed_updates);
  const double seconds = sum.whole() / updates;
  std::printf(
      "training of %s: %lld samples of %lld tokens, %lld at once, %lld steps after %lld that warm "
      "up\n%.1f ms a step: forward %.1f, backward %.1f%s, optimizer %.1f\n"
      "MFU: 6 FLOPs for each row and weight of a product, and attention's, of the nominal peak\n",
      model.name.c_str(), static_cast<long long>(model.train_samples),
      static_cast<long long>(SampleTokens(model)), static_cast<long long>(model.micro_batch),
      static_cast<long long>(model.timed_updates), static_cast<long long>(model.warm_updates),
      seconds * 1e3, sum.forward / updates * 1e3, sum.backward / updates * 1e3,
      sum.recompute ? " with every layer's forward again" : "", sum.optimizer / updates * 1e3);
  const ForwardWork work = WorkOf(model);
  figures.Add(tokens, static_cast<double>(work.rows) / seconds, "tokens/s");
  if (gpu.peaks.bf16_flops == 0) {
    figures.NotRun(mfu, gpu.peaks.source);
  } else {
    figures.Add(mfu, 100 * TrainingFlops(model.spec, work) / seconds / gpu.peaks.bf16_flops, "%");
  }
  return absl::OkStatus();
}

}  // namespace tandem::testing
