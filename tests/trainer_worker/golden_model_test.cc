// The executing model and its gradients against golden numbers on tiny random checkpoints.
#include <cmath>

#include <catch2/catch.hpp>

#include "common/comm/communicator.h"
#include "common/ops/cpu/adamw.h"
#include "common/process/threads.h"
#include "tests/support/golden.h"
#include "tests/support/golden_tensor.h"
#include "trainer_worker/trained_weights/checkpoint.h"
#include "trainer_worker/training_session.h"

namespace tandem {
namespace {

using testing::CompareValues;
using testing::GoldenCase;
using testing::GoldenDir;
using testing::GoldenFamily;
using testing::GoldenTensor;
using testing::Json;
using testing::ParseTensor;

std::vector<int32_t> TokensOfTensor(const Json& tensor) {
  const std::vector<int64_t> ids = ParseTensor(tensor).Ints();
  return {ids.begin(), ids.end()};
}

// Tokens of the longest prompt with what is generated after it.
int64_t LongestSequence(const GoldenCase& c) {
  size_t longest = 0;
  for (const Json& prompt : c.outputs.at("prompts")) {
    const size_t generated = TokensOfTensor(prompt.at("greedy_new_tokens")).size();
    longest = std::max(longest, TokensOfTensor(prompt.at("input_ids")).size() + generated);
  }
  return static_cast<int64_t>(longest);
}

// A session of one rank on a golden checkpoint, and a plain forward for whole rows of logits.
class GoldenModel {
 public:
  GoldenModel(const GoldenFamily& family, const GoldenCase& c, DType dtype) {
    const std::string dir = (family.dir / c.options.at("dir").get<std::string>()).string();
    const auto pool = std::make_shared<ThreadPool>(1);
    auto forward = CreateCpuForwardOps(dtype, pool);
    auto backward = CreateCpuBackwardOps(dtype, pool);
    REQUIRE(forward.ok());
    REQUIRE(backward.ok());
    forward_ = *std::move(forward);
    backward_ = *std::move(backward);
    SessionOptions options;
    options.model_dir = dir;
    options.vocab_limit = int64_t{1} << 40;
    options.max_sequence_tokens = LongestSequence(c);
    options.max_micro_batch_tokens = options.max_sequence_tokens;
    shard_ops_ = CreateCpuShardOps(pool);
    auto session = TrainingSession::Create(
        options, {HostDevice(), forward_.get(), backward_.get(), shard_ops_.get()}, &communicator_,
        &ledger_);
    REQUIRE(session.ok());
    session_ = *std::move(session);
    REQUIRE(LoadModel(dir, session_->spec(), session_->shard()).ok());
  }

  TrainingSession& session() { return *session_; }

  // Logits [tokens, vocab] of a whole sequence.
  std::vector<float> Logits(const std::vector<int32_t>& tokens) {
    const ModelSpec& spec = session_->spec();
    const DType dtype = forward_->compute_dtype();
    PackedBatch batch;
    batch.tokens = tokens;
    batch.sequences = {{.sample = 0, .first_row = 0, .rows = batch.rows()}};
    const BatchShape shape = ShapeOf(batch);
    std::vector<std::byte> memory(
        static_cast<size_t>(
            PlaceMicroBatch(spec, static_cast<int64_t>(DTypeBytes(dtype)), shape, Keep::kNothing)
                .end) +
        64);
    auto base = reinterpret_cast<uintptr_t>(memory.data());
    MicroBatchBuffers buffers =
        PlaceMicroBatch(spec, dtype, shape, Keep::kNothing, memory.data() + (64 - base % 64));
    std::vector<int32_t> blocks;
    for (int32_t i = 0; i < shape.kv_blocks; ++i) blocks.push_back(i);
    TokenBatch token_batch;
    token_batch.spans = {{0, batch.rows(), 0, blocks.data()}};
    token_batch.rope = &session_->decoder().rope();
    const std::vector<std::byte> storage = Storage();
    const std::vector<KvLayer> kv(static_cast<size_t>(spec.num_layers), buffers.kv);
    const Matrix last =
        session_->decoder().Forward(storage.data(), tokens.data(), token_batch, kv,
                                    buffers.layers[0], buffers.residuals[0], buffers.residuals[1]);
    const GlobalWeights globals = ViewGlobals(spec, session_->decoder().layout(), storage.data());
    forward_->RmsNorm(last, globals.final_norm, spec.rms_norm_eps, last);
    std::vector<float> logits(tokens.size() * static_cast<size_t>(spec.vocab_size));
    forward_->Logits(last, globals.head,
                     {logits.data(), batch.rows(), spec.vocab_size, spec.vocab_size});
    return logits;
  }

 private:
  std::vector<std::byte> Storage() {
    const WeightLayout& layout = session_->decoder().layout();
    const auto bytes = static_cast<size_t>(layout.total_bytes());
    std::vector<std::byte> storage(bytes);
    const ShardPlan& plan = session_->plan();
    const auto element = static_cast<int64_t>(DTypeBytes(layout.dtype()));
    for (size_t i = 0; i < plan.tensors().size(); ++i) {
      const TensorPlace& place = *plan.tensors()[i];
      layout.WriteRows(storage.data() + layout.group_offset(place.layer), place, 0, place.rows(),
                       session_->shard().compute() + plan.mine(i).offset * element);
    }
    return storage;
  }

  Ledger ledger_;
  SoloCommunicator communicator_;
  std::unique_ptr<ForwardOps> forward_;
  std::unique_ptr<BackwardOps> backward_;
  std::unique_ptr<ShardOps> shard_ops_;
  std::unique_ptr<TrainingSession> session_;
};

// The whole sequence as one sample whose every token but the first is trained. With advantages -1
// and old log-probs equal to the new ones, vanilla's gradient is that of the mean of -log-prob.
Sample WholeSequence(const std::vector<int32_t>& tokens) {
  Sample sample;
  sample.sample_id = 1;
  sample.tokens = tokens;
  sample.prompt_tokens = 1;
  sample.segments = {{1, sample.response_tokens(), true, 0}};
  sample.log_probs.assign(tokens.size() - 1, 0.0f);
  sample.versions.assign(tokens.size() - 1, 0);
  sample.advantages.assign(tokens.size() - 1, 1.0f);
  return sample;
}

void CheckModelLogits(GoldenModel& model, const Json& prompt) {
  const std::vector<int32_t> tokens = TokensOfTensor(prompt.at("input_ids"));
  const GoldenTensor want = ParseTensor(prompt.at("logits"));
  const std::vector<float> logits = model.Logits(tokens);
  REQUIRE(want.values.size() <= logits.size());
  const std::vector<float> tail(logits.end() - static_cast<int64_t>(want.values.size()),
                                logits.end());
  REQUIRE(CompareValues(tail, want.values, 1e-3, 2e-3) == "");
}

void CheckGreedyTokens(GoldenModel& model, const Json& prompt) {
  std::vector<int32_t> tokens = TokensOfTensor(prompt.at("input_ids"));
  const std::vector<int32_t> want = TokensOfTensor(prompt.at("greedy_new_tokens"));
  const auto vocab = static_cast<int64_t>(model.session().spec().vocab_size);
  for (size_t step = 0; step < want.size(); ++step) {
    if (testing::ParseNumber(prompt.at("greedy_top2_margin").at(step)) < 1e-3) return;
    const std::vector<float> logits = model.Logits(tokens);
    const auto best = std::max_element(logits.end() - vocab, logits.end());
    REQUIRE(best - (logits.end() - vocab) == want[step]);
    tokens.push_back(want[step]);
  }
}

void CheckTokenLogProbs(GoldenModel& model, const Json& prompt) {
  const std::vector<int32_t> tokens = TokensOfTensor(prompt.at("input_ids"));
  if (tokens.size() < 2) return;
  const auto scores = model.session().Score({WholeSequence(tokens)});
  REQUIRE(scores.ok());
  REQUIRE(CompareValues(scores->at(1), ParseTensor(prompt.at("token_logprobs")).values, 0, 5e-4) ==
          "");
}

std::vector<float> GradientOf(TrainingSession& session, const std::string& name) {
  const auto place = session.decoder().layout().Find(name);
  REQUIRE(place.ok());
  const ShardPlan::Piece& piece = session.plan().mine(session.plan().IndexOf(**place));
  const float* begin = session.shard().gradients() + piece.offset;
  return {begin, begin + piece.elements};
}

void CheckGradients(GoldenModel& model, const Json& outputs) {
  const Json& prompts = outputs.at("prompts");
  const auto longest =
      std::max_element(prompts.begin(), prompts.end(), [](const Json& a, const Json& b) {
        return a.at("input_ids").at("shape").at(0) < b.at("input_ids").at("shape").at(0);
      });
  Sample sample = WholeSequence(TokensOfTensor(longest->at("input_ids")));
  const auto scores = model.session().Score({sample});
  REQUIRE(scores.ok());
  sample.log_probs = scores->at(1);
  MiniBatchRequest request;
  request.global_tokens = static_cast<double>(sample.response_tokens());
  request.global_samples = 1;
  request.compare_log_probs = true;
  const auto report = model.session().Train(request, {sample});
  REQUIRE(report.ok());
  REQUIRE(report->comparison.identical == sample.response_tokens());
  double nll = 0;
  for (float value : sample.log_probs) nll -= value;
  REQUIRE(testing::IsClose(nll / request.global_tokens,
                           ParseTensor(outputs.at("loss_mean_nll_longest_prompt")).values[0], 1e-4,
                           1e-4));
  for (const auto& [name, norm] : outputs.at("grad_norms").items()) {
    INFO(name);
    const std::vector<float> gradient = GradientOf(model.session(), name);
    ThreadPool pool(1);
    const double got =
        std::sqrt(SumOfSquares(pool, gradient.data(), static_cast<int64_t>(gradient.size())));
    REQUIRE(testing::IsClose(got, testing::ParseNumber(norm), 2e-3, 1e-5));
  }
  for (const auto& [name, values] : outputs.at("grad_first_values").items()) {
    INFO(name);
    std::vector<float> gradient = GradientOf(model.session(), name);
    const GoldenTensor want = ParseTensor(values);
    gradient.resize(want.values.size());
    REQUIRE(CompareValues(gradient, want.values, 2e-3, 1e-5) == "");
  }
}

void CheckForward(const GoldenFamily& family, const GoldenCase& c) {
  GoldenModel model(family, c, DType::kFloat32);
  for (const Json& prompt : c.outputs.at("prompts")) {
    CheckModelLogits(model, prompt);
    CheckGreedyTokens(model, prompt);
    CheckTokenLogProbs(model, prompt);
  }
  CheckGradients(model, c.outputs);
}

void CheckBf16(const GoldenFamily& family, const GoldenCase& c) {
  GoldenModel model(family, c, DType::kBFloat16);
  std::vector<int32_t> longest;
  for (const Json& prompt : c.outputs.at("prompts")) {
    const std::vector<int32_t> tokens = TokensOfTensor(prompt.at("input_ids"));
    if (tokens.size() > longest.size()) longest = tokens;
  }
  const std::vector<float> logits = model.Logits(longest);
  const std::vector<double> want = ParseTensor(c.outputs.at("bf16_last_row_logits")).values;
  const std::vector<float> last(logits.end() - static_cast<int64_t>(want.size()), logits.end());
  REQUIRE(CompareValues(last, want, 0, 0.5) == "");
}

TEST_CASE("The fp32 model equals the golden logits, log-probs, tokens and gradients",
          "[golden][model]") {
  testing::RunGoldenFamily(testing::ReadGoldenFamily(GoldenDir(), "models"),
                           {{"causal_lm_forward", CheckForward}});
}

TEST_CASE("The bf16 model is near the golden bf16 logits", "[golden][model]") {
  testing::RunGoldenFamily(testing::ReadGoldenFamily(GoldenDir(), "models"),
                           {{"causal_lm_forward", CheckBf16}});
}

}  // namespace
}  // namespace tandem
