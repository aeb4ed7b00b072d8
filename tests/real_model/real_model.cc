#include "tests/real_model/real_model.h"

#include <catch2/catch.hpp>

#include "common/base/check.h"
#include "common/device/device.h"
#include "common/formats/hf_checkpoint.h"
#include "common/process/threads.h"
#include "common/text/chat_template.h"
#include "tests/support/golden.h"

namespace tandem::testing {
namespace {

constexpr int64_t kMaxTokens = 512;  // of a sequence
constexpr int64_t kKvBlocks = 128;

class Collector final : public GenerationSink {
 public:
  explicit Collector(std::map<uint64_t, Sample>* samples) : samples_(samples) {}
  void OnTokens(const TokenDelta&) override {}
  void OnFinished(const Sample& sample) override { samples_->emplace(sample.sample_id, sample); }
  void OnEnd(const absl::Status& status) override { end = status; }
  bool cancelled() const override { return false; }

  absl::Status end = absl::UnknownError("not ended");

 private:
  std::map<uint64_t, Sample>* const samples_;
};

template <typename T>
T Require(absl::StatusOr<T> value) {
  INFO(value.status().ToString());
  REQUIRE(value.ok());
  return *std::move(value);
}

}  // namespace

std::string RealModelDir() {
  return FolderOrSkip("TANDEM_MODEL_DIR", "models/SmolLM2-135M-Instruct").string();
}

const RealModel& RealModel::Get() {
  static const RealModel model(RealModelDir(), Require(LoadModelSpec(RealModelDir())));
  return model;
}

RealModel::RealModel(const std::string& dir, ModelSpec spec)
    : spec_(std::move(spec)), layout_(WeightLayout::Build(spec_, DType::kBFloat16)) {
  region_ = Require(HostDevice()->Reserve("weights", layout_.total_bytes(), nullptr));
  REQUIRE(region_->Map().ok());
  const auto checkpoint = Require(HfCheckpoint::Open(dir, spec_));
  for (const TensorPlace& place : layout_.places()) {
    std::vector<std::byte> rows(static_cast<size_t>(place.rows() * place.cols()) * 2);
    REQUIRE(checkpoint->ReadRows(place.name, 0, place.rows(), DType::kBFloat16, rows.data()).ok());
    layout_.WriteRows(region_->data() + layout_.group_offset(place.layer), place, 0, place.rows(),
                      rows.data());
  }
  tokenizer_ = Require(Tokenizer::Load(dir));
}

std::vector<int32_t> RealModel::Question(const std::string& text) const {
  REQUIRE(tokenizer_->chat_template().has_value());
  const auto parsed = Require(ChatTemplate::Parse(*tokenizer_->chat_template()));
  ChatInputs inputs;
  inputs.messages = {{{"role", "system"}, {"content", "Answer briefly."}},
                     {{"role", "user"}, {"content", text}}};
  inputs.add_generation_prompt = true;
  return Require(tokenizer_->Encode(Require(parsed.Render(inputs)), false));
}

std::map<uint64_t, Sample> Generate(const RealModel& model,
                                    const std::vector<GenerationRequest>& requests,
                                    const GenerateOptions& options) {
  const int64_t vocabulary = model.tokenizer().vocab_size();
  const auto runner = Require(ModelRunner::Create(
      HostDevice(), model.spec(),
      Require(CreateCpuForwardOps(DType::kBFloat16, std::make_shared<ThreadPool>(options.threads))),
      vocabulary, kMaxTokens, options.max_num_batched_tokens, nullptr));
  const auto kv =
      Require(KvCache::Create(HostDevice(), model.spec(), DType::kBFloat16, kKvBlocks, nullptr));
  REQUIRE(kv->Map().ok());
  REQUIRE(runner->MapActivations().ok());
  GeneratorOptions generator_options;
  generator_options.scheduler = {options.max_num_seqs, options.max_num_batched_tokens, true};
  generator_options.max_model_len = kMaxTokens;
  generator_options.vocab_limit = vocabulary;
  generator_options.eos_token_ids = model.tokenizer().eos_token_ids();
  Generator generator(generator_options, runner.get(), kv.get());

  std::map<uint64_t, Sample> samples;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const GenerationRequest& request : requests) {
    sinks.push_back(std::make_shared<Collector>(&samples));
    REQUIRE(generator.Submit(request, sinks.back()).ok());
  }
  for (int steps = 0; generator.has_work(); ++steps) {
    REQUIRE(steps < 10000);
    TANDEM_CHECK(generator.Step(model.weights(), 0).ok(), "a CPU has no errors");
  }
  for (const auto& sink : sinks) REQUIRE(sink->end.ok());
  return samples;
}

GenerationRequest MakeRequest(int64_t group, std::vector<int32_t> prompt, int64_t samples) {
  GenerationRequest request;
  request.request_id = "request-" + std::to_string(group);
  request.group = group;
  request.prompt = std::move(prompt);
  for (int64_t i = 0; i < samples; ++i) {
    request.sample_ids.push_back(
        MakeSampleId(static_cast<uint64_t>(group), 1, static_cast<uint64_t>(i)));
  }
  request.params.seed = 17;
  return request;
}

}  // namespace tandem::testing
