// The gradient of the whole loss (policy loss, KL and entropy terms, through model and head)
// against differences of the loss itself, on the fp32 path.
#include <algorithm>
#include <cmath>

#include "tests/trainer_worker/trainer_ranks.h"

namespace tandem {
namespace {

using namespace tandem::testing;

MiniBatchRequest FullLoss(const std::vector<Sample>& samples) {
  MiniBatchRequest request = RequestFor(samples);
  request.loss.use_kl_loss = true;
  request.loss.kl_loss_coef = 0.3;
  request.loss.entropy_coeff = 0.2;
  return request;
}

double LossOf(TrainingSession& session, const std::vector<Sample>& samples) {
  REQUIRE(session.shard().MastersWritten(0, session.shard().elements()).ok());
  REQUIRE(session.WeightsChanged().ok());
  const auto report = session.Train(FullLoss(samples), samples);
  REQUIRE(report.ok());
  return report->metrics.at("actor/loss");
}

TEST_CASE("Gradients of the whole loss equal differences of the loss", "[trainer][gradients]") {
  for (const std::string type : {"llama", "qwen2", "qwen3"}) {
    const TempDir dir;
    TinyModelOptions model;
    model.model_type = type;
    model.float32 = true;
    model.tie_word_embeddings = type == "llama";
    TrainerRanksOptions options{.model_dir = (dir.path() / "model").string()};
    options.dtype = DType::kFloat32;
    REQUIRE(WriteTinyModel(options.model_dir, model).ok());
    TrainerRanks one(1, options);
    TrainingSession& session = *one[0].session;
    std::vector<Sample> samples = RandomSamples(3, 21);
    const auto scores = session.Score(samples);
    REQUIRE(scores.ok());
    for (Sample& sample : samples) {
      // Ratios near 1, away from the clip's corners; a reference that differs.
      sample.log_probs = scores->at(sample.sample_id);
      sample.ref_log_probs = sample.log_probs;
      for (float& value : sample.log_probs) value += 0.05f;
      for (float& value : sample.ref_log_probs) value -= 0.3f;
    }
    LossOf(session, samples);
    for (const std::string& name : one.TensorNames()) {
      INFO(type << " " << name);
      const std::vector<float> gradient = one.Gradient(name);
      const auto largest = std::max_element(gradient.begin(), gradient.end(), [](float a, float b) {
        return std::abs(a) < std::abs(b);
      });
      const auto index = largest - gradient.begin();
      const float want = *largest;
      const auto place = session.decoder().layout().Find(name);
      REQUIRE(place.ok());
      float& weight =
          session.shard()
              .master()[session.plan().mine(session.plan().IndexOf(**place)).offset + index];
      const float before = weight;
      const float step = 2e-3f;
      weight = before + step;
      const double up = LossOf(session, samples);
      weight = before - step;
      const double down = LossOf(session, samples);
      weight = before;
      const double got = (up - down) / (2.0 * step);
      REQUIRE(got == Approx(want).epsilon(0.03).margin(2e-4));
    }
  }
}

}  // namespace
}  // namespace tandem
