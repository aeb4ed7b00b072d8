#include "tests/golden_run/tiny_run.h"

#include <algorithm>
#include <map>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "common/base/check.h"
#include "common/device/device.h"
#include "common/process/threads.h"
#include "controller/algorithm/group_scores.h"
#include "tests/fakes/fake_update_client.h"
#include "tests/support/tiny_model.h"
#include "trainer_worker/trained_weights/checkpoint.h"
#include "trainer_worker/weight_sync/weight_sources.h"

namespace tandem::testing {
namespace {

constexpr int64_t kVocabulary = 2500;  // three chunks of the head, the last one not full
constexpr int64_t kMaxTokens = 192;    // of a sequence: more than two KV blocks
constexpr int64_t kPrompts = 4, kSamples = 4, kResponse = 20;
constexpr int64_t kMiniBatchSamples = kPrompts * kSamples / 2;

template <typename T>
T Require(absl::StatusOr<T> value) {
  INFO(value.status().ToString());
  REQUIRE(value.ok());
  return *std::move(value);
}

TinyModelOptions ModelOptions(const TinyRunOptions& options) {
  TinyModelOptions model;
  model.model_type = options.model_type;
  model.vocab_size = kVocabulary;
  return model;
}

class Collector final : public GenerationSink {
 public:
  explicit Collector(std::vector<Sample>* samples) : samples_(samples) {}
  void OnTokens(const TokenDelta&) override {}
  void OnFinished(const Sample& sample) override { samples_->push_back(sample); }
  void OnEnd(const absl::Status& status) override { REQUIRE(status.ok()); }
  bool cancelled() const override { return false; }

 private:
  std::vector<Sample>* const samples_;
};

GenerationRequest MakeRequest(int64_t step, int64_t prompt) {
  GenerationRequest request;
  request.request_id = fmt::format("{}-{}", step, prompt);
  request.group = prompt;
  // 5 to 98 tokens: within a KV block and beyond.
  for (int64_t i = 0; i < 5 + 31 * prompt; ++i) {
    request.prompt.push_back(
        static_cast<int32_t>((i * 389 + prompt * 71 + step * 7) % kVocabulary));
  }
  const auto row = static_cast<uint64_t>(step * kPrompts + prompt);
  for (uint64_t i = 0; i < kSamples; ++i) request.sample_ids.push_back(MakeSampleId(row, 0, i));
  request.params.max_tokens = kResponse;
  request.params.seed = 3;
  request.params.temperature = prompt == 1 ? 0.8f : 1.0f;
  request.params.ignore_eos = true;
  return request;
}

// The share of response tokens with a small id.
float Reward(const Sample& sample) {
  const auto begin = sample.tokens.begin() + sample.prompt_tokens;
  const auto small =
      std::count_if(begin, sample.tokens.end(), [](int32_t id) { return id < kVocabulary / 3; });
  return static_cast<float>(small) / static_cast<float>(sample.response_tokens());
}

void SetAdvantages(std::vector<Sample>& samples) {
  std::map<int64_t, std::vector<Sample*>> groups;
  for (Sample& sample : samples) groups[sample.group].push_back(&sample);
  for (auto& [group, members] : groups) {
    std::vector<float> scores;
    for (const Sample* sample : members) scores.push_back(Reward(*sample));
    const std::vector<float> advantages = GrpoAdvantages(scores, GroupScale::kStandardDeviation);
    for (size_t i = 0; i < members.size(); ++i) {
      members[i]->advantages.assign(static_cast<size_t>(kResponse), advantages[i]);
    }
  }
}

template <typename T>
std::string DigestOfAll(const std::vector<Sample>& samples, std::vector<T> Sample::*field) {
  std::vector<T> all;
  for (const Sample& sample : samples) {
    all.insert(all.end(), (sample.*field).begin(), (sample.*field).end());
  }
  return DigestOf(all.data(), static_cast<int64_t>(all.size() * sizeof(T))).Hex();
}

MiniBatchRequest TrainRequest(int mini_batch) {
  MiniBatchRequest request;
  request.global_tokens = kMiniBatchSamples * kResponse;
  request.global_samples = kMiniBatchSamples;
  request.compare_log_probs = mini_batch == 0;
  request.loss.entropy_coeff = 0.01;
  request.loss.use_kl_loss = true;
  request.loss.kl_loss_coef = 0.05;
  return request;
}

}  // namespace

TinyRun::TinyRun(const TinyRunOptions& options) : options_(options) {
  const std::string model_dir = dir_.path() / "model";
  REQUIRE(WriteTinyModel(model_dir, ModelOptions(options)).ok());
  spec_ = Require(LoadModelSpec(model_dir));
  layout_ = WeightLayout::Build(spec_, DType::kBFloat16);
  LoadModels(model_dir);
  MakeGenerator();
  Publish();
}

void TinyRun::LoadModels(const std::string& model_dir) {
  pool_ = std::make_shared<ThreadPool>(options_.threads);
  forward_ = Require(CreateCpuForwardOps(DType::kBFloat16, pool_));
  backward_ = Require(CreateCpuBackwardOps(DType::kBFloat16, pool_));
  shard_ops_ = CreateCpuShardOps(pool_);
  SessionOptions session;
  session.model_dir = model_dir;
  session.vocab_limit = kVocabulary;
  session.max_sequence_tokens = kMaxTokens;
  session.max_micro_batch_tokens = 256;
  session.optimizer.schedule.lr = 2e-3;
  session_ = Require(TrainingSession::Create(
      session, {HostDevice(), forward_.get(), backward_.get(), shard_ops_.get()}, &communicator_,
      &ledger_));
  REQUIRE(LoadModel(model_dir, session_->spec(), session_->shard()).ok());
  REQUIRE(session_->WeightsChanged().ok());
  REQUIRE(session_->FreezeReference().ok());
}

void TinyRun::MakeGenerator() {
  storage_ = Require(HostDevice()->Reserve("weights", layout_.total_bytes(), nullptr));
  REQUIRE(storage_->Map().ok());
  receiver_ =
      std::make_unique<UpdateTransaction>(CreateCpuStorageOps(&layout_, storage_->data(), pool_));
  GeneratorOptions options;
  options.scheduler = {.max_num_seqs = 12, .max_num_batched_tokens = 100};
  options.max_model_len = kMaxTokens;
  options.vocab_limit = kVocabulary;
  runner_ = Require(ModelRunner::Create(
      HostDevice(), spec_, Require(CreateCpuForwardOps(DType::kBFloat16, pool_)), kVocabulary,
      kMaxTokens, options.scheduler.max_num_batched_tokens, nullptr));
  REQUIRE(runner_->MapActivations().ok());
  kv_ = Require(KvCache::Create(HostDevice(), spec_, DType::kBFloat16, /*num_blocks=*/64, nullptr));
  REQUIRE(kv_->Map().ok());
  generator_ = std::make_unique<Generator>(options, runner_.get(), kv_.get());
}

void TinyRun::Publish() {
  FakeUpdateClient client(receiver_.get());
  GatheredWeightSource source(&session_->shard(), &communicator_);
  const auto report = session_->publisher().Publish(version_, source, &client);
  INFO(report.status().ToString());
  REQUIRE(report.ok());
}

std::vector<Sample> TinyRun::Generate() {
  std::vector<Sample> samples;
  for (int64_t prompt = 0; prompt < kPrompts; ++prompt) {
    REQUIRE(
        generator_->Submit(MakeRequest(step_, prompt), std::make_shared<Collector>(&samples)).ok());
  }
  while (generator_->has_work()) {
    TANDEM_CHECK(generator_->Step(storage_->data(), version_).ok(), "a CPU has no errors");
  }
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return a.sample_id < b.sample_id; });
  REQUIRE(std::ssize(samples) == kPrompts * kSamples);
  return samples;
}

std::string TinyRun::TrainOn(std::vector<Sample> samples, int mini_batch) {
  const MiniBatchRequest request = TrainRequest(mini_batch);
  const LogProbsBySample reference = Require(session_->Score(samples, LogProbPolicy::kReference));
  for (Sample& sample : samples) sample.ref_log_probs = reference.at(sample.sample_id);
  MiniBatchReport report = Require(session_->Train(request, samples));
  REQUIRE(report.comparison.identical == report.comparison.compared);
  REQUIRE(report.comparison.compared == (mini_batch == 0 ? kMiniBatchSamples * kResponse : 0));
  const OptimizerReport step = Require(session_->Step());
  std::string weights;
  ++version_;
  Publish();
  const auto digests = Require(receiver_->Digests());
  for (const Digest& digest : digests) weights += digest.Bytes();
  auto metric = [&](const char* name) { return report.metrics.at(name); };
  return fmt::format(
      "step {} mini-batch {}: loss {:a} policy {:a} kl {:a} entropy {:a} ppo_kl {:a} clipped {:a} "
      "grad_norm {:a} tokens {} log-probs {} weights {}\n",
      step_, mini_batch, metric("actor/loss"), metric("actor/pg_loss"), metric("actor/kl_loss"),
      metric("actor/entropy"), metric("actor/ppo_kl"), metric("actor/pg_clipfrac"), step.grad_norm,
      DigestOfAll(samples, &Sample::tokens), DigestOfAll(samples, &Sample::log_probs),
      DigestOf(weights.data(), std::ssize(weights)).Hex());
}

std::string TinyRun::Step() {
  ++step_;
  std::vector<Sample> samples = Generate();
  SetAdvantages(samples);
  // Samples of every prompt in both halves.
  std::vector<Sample> halves[2];
  for (const Sample& sample : samples) halves[sample.index % 2].push_back(sample);
  const std::string first = TrainOn(halves[0], 0);
  return first + TrainOn(halves[1], 1);
}

}  // namespace tandem::testing
