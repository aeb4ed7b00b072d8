// Trainer ranks as threads of a test: a tiny model, one session per rank, collectives over shared
// memory.
#pragma once

#include <bit>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "common/backend/cpu_backend.h"
#include "common/base/philox.h"
#include "common/base/status.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "trainer_worker/trained_weights/checkpoint.h"
#include "trainer_worker/trained_weights/lora_weights.h"
#include "trainer_worker/training_session.h"

namespace tandem::testing {

// Sizes that neither 2 nor 3 divides.
inline TinyModelOptions NarrowModel() {
  return {.hidden_size = 50, .num_heads = 5, .num_kv_heads = 1, .head_dim = 10};
}
// The same with all other sizes odd too, and norms with fewer rows than some chunks need.
inline TinyModelOptions OddModel() {
  TinyModelOptions options = NarrowModel();
  options.model_type = "qwen3";
  options.vocab_size = 289;
  options.intermediate_size = 77;
  return options;
}

// One rank: everything that outlives its session. Members are destroyed bottom up.
struct Rank {
  std::unique_ptr<Ledger> ledger = std::make_unique<Ledger>();
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<ForwardOps> forward;
  std::unique_ptr<BackwardOps> backward;
  std::unique_ptr<ShardOps> shard_ops;
  SessionOptions options;  // of its session
  std::unique_ptr<TrainingSession> session;
  absl::Status status;
};

inline std::unique_ptr<Backend> MakeHostBackend() {
  return MakeCpuBackend(std::make_shared<ThreadPool>(1));
}

struct TrainerRanksOptions {
  std::string model_dir;
  DType dtype = DType::kBFloat16;
  int64_t max_micro_batch_tokens = 256;
  Recompute recompute = Recompute::kNever;
  double lr = 1e-3;
  bool share_prompts = true;
  int64_t kept_bytes = 0;  // 0: ranks of several gather every layer anew
  bool has_own_device = false;
  bool offload_master = false;
  bool offload_moments = false;
  Reshard reshard = Reshard::kAuto;
  bool prefetch = true;
  BatchLimits train_limits{.samples = 0};  // not known: memory grows with the data
  BatchLimits score_limits{.samples = 0};
  BatchLimits probe_limits{.samples = 0};
  bool offload_reference = false;
  std::string transport = "auto";  // weight_sync.transport
  LoraOptions lora;                // rank 0: all weights are trained
  std::unique_ptr<Backend> (*make_backend)() = MakeHostBackend;
};

// Of a session that trains adapters.
inline LoraWeights& LoraOf(Rank& rank) {
  return dynamic_cast<LoraTraining&>(rank.session->weights()).lora();
}

// Anew, on what the rank has; its masters are 0.
inline absl::Status StartSession(Rank& rank) {
  rank.session.reset();
  TANDEM_ASSIGN_OR_RETURN(rank.session,
                          TrainingSession::Create(rank.options,
                                                  {rank.backend->device(), rank.forward.get(),
                                                   rank.backward.get(), rank.shard_ops.get()},
                                                  rank.communicator.get(), rank.ledger.get()));
  return absl::OkStatus();
}

// `body` runs on every rank at once; its failure is kept in the rank's status. All are joined.
class TrainerRanks {
 public:
  TrainerRanks(int world_size, const TrainerRanksOptions& options) : ranks_(Size(world_size)) {
    Run([&](Rank& rank, int index) { return Start(rank, index, options); });
    for (const Rank& rank : ranks_) {
      INFO(rank.status.ToString());
      REQUIRE(rank.status.ok());
    }
  }

  void Run(const std::function<absl::Status(Rank&, int)>& body) {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      threads.emplace_back([&, i] { ranks_[i].status = body(ranks_[i], static_cast<int>(i)); });
    }
  }
  // The same; every rank must succeed.
  void RunOk(const std::function<absl::Status(Rank&, int)>& body) {
    Run(body);
    for (const Rank& rank : ranks_) {
      INFO(rank.status.ToString());
      REQUIRE(rank.status.ok());
    }
  }

  Rank& operator[](int rank) { return ranks_[Size(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  // A full fp32 tensor put together from what `shard_of` returns on every rank, wherever that lies.
  std::vector<float> Full(const std::string& name,
                          const std::function<const float*(ParameterShard&)>& shard_of) {
    std::vector<float> full;
    for (Rank& rank : ranks_) {
      const ShardPlan& plan = rank.session->plan();
      const auto place = plan.layout().Find(name);
      REQUIRE(place.ok());
      const ShardPlan::Piece& piece = plan.mine(plan.IndexOf(**place));
      const float* begin = shard_of(rank.session->shard()) + piece.offset;
      full.resize(full.size() + Size(piece.elements));
      Device* const device = rank.backend->device();
      device->Copy(full.data() + full.size() - piece.elements, begin,
                   piece.elements * static_cast<int64_t>(sizeof(float)));
      REQUIRE(device->Synchronize().ok());
    }
    return full;
  }
  std::vector<float> Gradient(const std::string& name) {
    return Full(name, [](ParameterShard& shard) { return shard.gradients(); });
  }
  std::vector<float> Master(const std::string& name) {
    return Full(name, [](ParameterShard& shard) { return shard.master(); });
  }
  // Every rank's own.
  std::string offload_dir(int rank) const {
    return (offload_dir_.path() / std::to_string(rank)).string();
  }
  std::vector<std::string> TensorNames() {
    std::vector<std::string> names;
    for (const TensorPlace& place : ranks_[0].session->decoder().layout().places()) {
      names.push_back(place.name);
    }
    return names;
  }

 private:
  static size_t Size(int64_t value) { return static_cast<size_t>(value); }

  absl::Status Start(Rank& rank, int index, const TrainerRanksOptions& options) {
    SharedMemoryGroupOptions group;
    group.rank = index;
    group.world_size = size();
    group.rendezvous = (dir_.path() / "group.sock").string();
    group.generation = 1;
    group.deadline = kPatience;
    rank.backend = options.make_backend();
    TANDEM_ASSIGN_OR_RETURN(rank.communicator, rank.backend->JoinGroup(group));
    TANDEM_ASSIGN_OR_RETURN(rank.forward, rank.backend->MakeForwardOps(options.dtype));
    TANDEM_ASSIGN_OR_RETURN(rank.backward, rank.backend->MakeBackwardOps(options.dtype));
    TANDEM_ASSIGN_OR_RETURN(rank.shard_ops, rank.backend->MakeShardOps());
    SessionOptions& session = rank.options;
    TANDEM_ASSIGN_OR_RETURN(session.publish.transport, rank.backend->Transport(options.transport));
    session.kept_bytes = options.kept_bytes;
    session.has_own_device = options.has_own_device;
    session.reshard = options.reshard;
    session.prefetch = options.prefetch;
    session.train_limits = options.train_limits;
    session.score_limits = options.score_limits;
    session.probe_limits = options.probe_limits;
    session.offload_reference = options.offload_reference;
    session.offload_dir = offload_dir(index);
    std::filesystem::create_directory(session.offload_dir);
    session.model_dir = options.model_dir;
    session.vocab_limit = TinyTokenizerSize();
    session.max_sequence_tokens = 128;
    session.max_micro_batch_tokens = options.max_micro_batch_tokens;
    session.recompute = options.recompute;
    session.share_prompts = options.share_prompts;
    session.optimizer.schedule.lr = options.lr;
    session.offload_master = options.offload_master;
    session.offload_moments = options.offload_moments;
    session.lora = options.lora;
    TANDEM_RETURN_IF_ERROR(StartSession(rank));
    TANDEM_RETURN_IF_ERROR(rank.session->weights().Load({}, rank.session->optimizer()));
    return rank.session->WeightsChanged();
  }

  TempDir dir_, offload_dir_;
  std::vector<Rank> ranks_;
};

// `count` samples with seeded random tokens, lengths and advantages.
inline std::vector<Sample> RandomSamples(int count, uint64_t seed) {
  std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    const auto stream = static_cast<uint64_t>(i);
    const auto words = RandomWords(seed, stream, 1000);
    Sample sample;
    sample.sample_id = MakeSampleId(stream, 0, 0);
    sample.prompt_tokens = 3 + words[0] % 20;
    const auto response = static_cast<int64_t>(2 + words[1] % 30);
    for (int64_t t = 0; t < sample.prompt_tokens + response; ++t) {
      sample.tokens.push_back(
          static_cast<int32_t>(RandomWords(seed, stream, static_cast<uint64_t>(t))[0] %
                               static_cast<uint32_t>(TinyTokenizerSize())));
    }
    sample.segments = {{0, sample.prompt_tokens, false, 0},
                       {sample.prompt_tokens, response, true, 0}};
    const auto n = static_cast<size_t>(response);
    sample.log_probs.assign(n, -5.5f);
    sample.versions.assign(n, 0);
    sample.advantages.assign(n, words[2] % 2 == 0 ? 1.3f : -0.7f);
    samples.push_back(std::move(sample));
  }
  return samples;
}

inline int64_t TrainedTokens(const std::vector<Sample>& samples) {
  int64_t tokens = 0;
  for (const Sample& sample : samples) tokens += sample.response_tokens();
  return tokens;
}

// The samples of one rank: every world-th.
inline std::vector<Sample> Share(const std::vector<Sample>& samples, int rank, int world) {
  std::vector<Sample> share;
  for (size_t i = static_cast<size_t>(rank); i < samples.size(); i += static_cast<size_t>(world)) {
    share.push_back(samples[i]);
  }
  return share;
}

inline MiniBatchRequest RequestFor(const std::vector<Sample>& samples) {
  MiniBatchRequest request;
  request.global_tokens = static_cast<double>(TrainedTokens(samples));
  request.global_samples = static_cast<double>(samples.size());
  return request;
}

// Trains the group on the samples, spread over its ranks.
inline void TrainOn(TrainerRanks& group,
                    const std::vector<Sample>& samples,
                    const MiniBatchRequest& request) {
  group.RunOk([&](Rank& rank, int index) {
    return rank.session->Train(request, Share(samples, index, group.size())).status();
  });
}
inline void TrainOn(TrainerRanks& group, const std::vector<Sample>& samples) {
  TrainOn(group, samples, RequestFor(samples));
}

// One optimizer step on every rank; the reports are equal but for counts.
inline OptimizerReport StepOn(TrainerRanks& group) {
  std::vector<OptimizerReport> reports(static_cast<size_t>(group.size()));
  group.RunOk([&](Rank& rank, int index) {
    const auto report = rank.session->Step();
    if (report.ok()) reports[static_cast<size_t>(index)] = *report;
    return report.status();
  });
  for (const OptimizerReport& report : reports) {
    REQUIRE(std::bit_cast<uint64_t>(report.grad_norm) ==
            std::bit_cast<uint64_t>(reports[0].grad_norm));
  }
  return reports[0];
}

inline void RequireSameGradients(TrainerRanks& a, TrainerRanks& b) {
  for (const std::string& name : a.TensorNames()) {
    INFO(name);
    const bool same = a.Gradient(name) == b.Gradient(name);
    REQUIRE(same);
  }
}

}  // namespace tandem::testing
