// An offloaded reference policy on a GPU: a layer comes in while the one before it computes, and
// the log-probs are those of one that lies on the device. The GPU is emulated.
#include <cstring>

#include "common/backend/cuda_backend.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/trainer_worker/trainer_ranks.h"

namespace tandem {
namespace {

using namespace tandem::testing;

uint64_t late_streams_of_next_backend = 0;

std::unique_ptr<Backend> MakeLateBackend() {
  return MakeCudaBackend(std::make_unique<emulator::EmulatedCuda>(emulator::EmulatedCudaOptions{
                             .late_streams = late_streams_of_next_backend}),
                         0)
      .value();
}

TrainerRanksOptions LateOptions(const TempDir& dir, uint64_t late) {
  TrainerRanksOptions options{.model_dir = (dir.path() / "model").string()};
  REQUIRE(WriteTinyModel(options.model_dir, {.num_layers = 4,
                                             .num_heads = 2,
                                             .num_kv_heads = 1,
                                             .head_dim = 64,
                                             .intermediate_size = 64})
              .ok());
  options.make_backend = MakeLateBackend;
  late_streams_of_next_backend = late;
  return options;
}

// Freezes, steps away from the frozen weights, and scores under the reference, under the weights
// as they are, and under the reference again: each policy's layers take the other's places.
std::vector<LogProbsBySample> ReferenceScores(TrainerRanks& group,
                                              const std::vector<Sample>& samples) {
  TrainingSession& session = *group[0].session;
  REQUIRE(session.FreezeReference().ok());
  TrainOn(group, samples);
  StepOn(group);
  std::vector<LogProbsBySample> scores;
  scores.push_back(session.Score(samples, LogProbPolicy::kReference).value());
  scores.push_back(session.Score(samples).value());
  scores.push_back(session.Score(samples, LogProbPolicy::kReference).value());
  return scores;
}

}  // namespace

TEST_CASE("An offloaded reference gives the bits of one on the GPU, whichever streams are late",
          "[trainer][cuda][reference]") {
  const TempDir dir;
  const std::vector<Sample> samples = RandomSamples(1, 3);
  TrainerRanksOptions options = LateOptions(dir, 0);
  TrainerRanks resident(1, options);
  const std::vector<LogProbsBySample> want = ReferenceScores(resident, samples);
  REQUIRE(want[0] == want[2]);
  REQUIRE(want[0] != want[1]);
  options.offload_reference = true;
  // None, the work's alone, all others, all; with and without prefetch.
  for (const uint64_t late : {uint64_t{0}, uint64_t{1}, ~uint64_t{1}, ~uint64_t{0}}) {
    late_streams_of_next_backend = late;
    options.prefetch = late != 0;
    TrainerRanks offloaded(1, options);
    const bool same = ReferenceScores(offloaded, samples) == want;
    INFO("late streams " << late);
    REQUIRE(same);
  }
}

TEST_CASE("A layer of an offloaded reference comes in beside the work and is waited for in time",
          "[trainer][cuda][reference]") {
  const TempDir dir;
  const TrainerRanksOptions options = LateOptions(dir, ~uint64_t{1});
  TrainerRanks group(1, options);
  Rank& rank = group[0];
  const ParameterShard& shard = rank.session->shard();
  Device* const device = rank.backend->device();
  const auto copy = ReferenceShard::Copy(shard, group.offload_dir(0), nullptr).value();
  const std::vector<Sample> samples = RandomSamples(1, 3);
  TrainOn(group, samples);
  StepOn(group);
  OrderedCommunicator communicator(rank.communicator.get());
  const auto buffers = LayerBuffers::Create(device, &shard.plan(), nullptr, {}).value();
  const auto weights = MakeLayerSource(copy.get(), buffers.get(), &communicator);
  const auto trained = MakeLayerSource(&rank.session->shard(), buffers.get(), &communicator);
  REQUIRE(weights->Map().ok());
  const WeightLayout& layout = shard.plan().layout();
  const auto read = [&](const std::byte* from) {
    std::vector<std::byte> bytes(static_cast<size_t>(layout.layer_bytes()));
    device->Copy(bytes.data(), from, layout.layer_bytes());
    REQUIRE(device->Synchronize().ok());
    return bytes;
  };
  const std::vector<std::byte> zeros(static_cast<size_t>(layout.layer_bytes()));
  for (int layer = 0; layer + 1 < layout.num_layers(); ++layer) {
    const std::byte* const here = weights->Layer(layer).value();
    const std::byte* const next = here + layout.layer_bytes();
    weights->Prefetch(layer + 1);
    // The work does not wait for the next layer ...
    REQUIRE((read(next) == zeros));
    // ... until it asks for it.
    REQUIRE(weights->Layer(layer + 1).value() == next);
    REQUIRE_FALSE((read(next) == zeros));
  }
  // What was on its way when the policy changed is written no more.
  weights->Invalidate();
  REQUIRE(weights->Layer(0).ok());
  weights->Prefetch(1);
  REQUIRE(trained->Map().ok());
  const std::vector<std::byte> current = read(trained->Layer(1).value());
  REQUIRE(buffers->Release().ok());
  REQUIRE(trained->Map().ok());
  REQUIRE((read(trained->Layer(1).value()) == current));
  REQUIRE(weights->Map().ok());
  REQUIRE_FALSE((read(weights->Layer(1).value()) == current));
}

}  // namespace tandem
