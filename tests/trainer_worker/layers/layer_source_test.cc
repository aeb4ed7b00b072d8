// Where ranks gather weights into: groups for the ops, slots for a sync.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "tests/trainer_worker/trainer_ranks.h"
#include "trainer_worker/weight_sync/weight_sources.h"

namespace tandem {
namespace {

using namespace tandem::testing;

std::string WriteOdd(const TempDir& dir) {
  const std::string path = (dir.path() / "model").string();
  REQUIRE(WriteTinyModel(path, OddModel()).ok());
  return path;
}

// A model whose layers take megabytes, so that places of layers show in the ledger.
std::string WriteLargeLayers(const TempDir& dir) {
  TinyModelOptions options;
  options.hidden_size = 256;
  options.num_layers = 5;
  options.num_heads = 8;
  options.head_dim = 32;
  options.intermediate_size = 1536;
  const std::string path = (dir.path() / "model").string();
  REQUIRE(WriteTinyModel(path, options).ok());
  return path;
}

int64_t BytesOfRegion(int64_t bytes) {
  const int64_t page = int64_t{2} << 20;
  return (bytes + page - 1) / page * page;
}

void RequireSame(TrainerRanks& want, TrainerRanks& got) {
  for (const std::string& name : want.TensorNames()) {
    INFO(name);
    const bool same_gradient = want.Gradient(name) == got.Gradient(name);
    REQUIRE(same_gradient);
    const bool same_master = want.Master(name) == got.Master(name);
    REQUIRE(same_master);
  }
}

std::vector<LogProbsBySample> ScoresOfGroup(TrainerRanks& group,
                                            const std::vector<Sample>& samples) {
  std::vector<LogProbsBySample> scores(group.size());
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(scores[index],
                            rank.session->Score(Share(samples, index, group.size())));
    return absl::OkStatus();
  });
  return scores;
}

TEST_CASE("Which layers stay gathered, and whether the next is gathered ahead, changes no bit",
          "[trainer][ranks]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteOdd(dir), .max_micro_batch_tokens = 90};
  // One sample more than ranks: with three ranks, two of them join passes with nothing to compute.
  const std::vector<Sample> samples = RandomSamples(4, 5);
  for (const int world : {2, 3}) {
    options.reshard = Reshard::kAlways;
    options.prefetch = false;
    options.recompute = Recompute::kNever;
    TrainerRanks plain(world, options);
    struct Other {
      Reshard reshard;
      bool prefetch;
      Recompute recompute;
    };
    std::vector<std::unique_ptr<TrainerRanks>> others;
    for (const Other& other : {Other{Reshard::kAlways, true, Recompute::kNever},
                               Other{Reshard::kAlways, true, Recompute::kAlways},
                               Other{Reshard::kNever, false, Recompute::kAlways},
                               Other{Reshard::kNever, true, Recompute::kNever}}) {
      options.reshard = other.reshard;
      options.prefetch = other.prefetch;
      options.recompute = other.recompute;
      others.push_back(std::make_unique<TrainerRanks>(world, options));
    }
    for (int step = 0; step < 3; ++step) {
      const auto scores = ScoresOfGroup(plain, samples);
      TrainOn(plain, samples);
      StepOn(plain);
      for (const auto& other : others) {
        REQUIRE(ScoresOfGroup(*other, samples) == scores);
        TrainOn(*other, samples);
        StepOn(*other);
        RequireSame(plain, *other);
      }
    }
  }
}

TEST_CASE("Gathered layers take the memory that the formula says", "[trainer][ranks]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteLargeLayers(dir)};
  const std::vector<Sample> samples = RandomSamples(2, 5);
  for (const int world : {1, 2}) {
    for (const Reshard reshard : {Reshard::kAlways, Reshard::kNever, Reshard::kAuto}) {
      for (const bool prefetch : {false, true}) {
        options.reshard = reshard;
        options.prefetch = prefetch;
        TrainerRanks group(world, options);
        TrainOn(group, samples);
        const WeightLayout& layout = group[0].session->decoder().layout();
        const GatherSizes sizes = GatherSizesOf({.global = layout.global_bytes(),
                                                 .layer = layout.layer_bytes(),
                                                 .layers = layout.num_layers()},
                                                {.ranks = world,
                                                 .reshard = reshard,
                                                 .prefetch = prefetch,
                                                 .kept_bytes = options.kept_bytes});
        const bool all = world == 1 || reshard == Reshard::kNever;
        REQUIRE(sizes.layers == (all ? 5 : prefetch ? 2 : 1));
        REQUIRE(BytesOf(group[0].ledger->Snapshot(), "gather") ==
                BytesOfRegion(sizes.places) + BytesOfRegion(sizes.staging));
      }
    }
  }
}

TEST_CASE("Activations that are kept take their memory on every rank, whichever layers stay",
          "[trainer][recompute]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteLargeLayers(dir)};
  const std::vector<Sample> samples = RandomSamples(6, 5);
  for (const int world : {1, 2, 3}) {
    for (const Reshard reshard : {Reshard::kAlways, Reshard::kNever}) {
      options.reshard = reshard;
      options.recompute = Recompute::kNever;
      TrainerRanks kept(world, options);
      options.recompute = Recompute::kAlways;
      TrainerRanks recomputed(world, options);
      TrainOn(kept, samples);
      TrainOn(recomputed, samples);
      RequireSame(kept, recomputed);
      for (int rank = 0; rank < world; ++rank) {
        const auto activations = [rank](TrainerRanks& group) {
          return BytesOf(group[rank].ledger->Snapshot(), "activations");
        };
        REQUIRE(activations(kept) > activations(recomputed));
      }
    }
  }
}

// Two ranks that gather layer 0 and then ask for layer 1 ahead, without a session around it.
struct Gathering {
  Gathering(Rank& rank, GatherOptions options)
      : communicator(std::make_unique<OrderedCommunicator>(rank.communicator.get())) {
    auto made = LayerBuffers::Create(HostDevice(), &rank.session->plan(), nullptr, options);
    REQUIRE(made.ok());
    buffers = *std::move(made);
    weights = MakeLayerSource(&rank.session->shard(), buffers.get(), communicator.get());
  }
  absl::Status Begin() {
    TANDEM_RETURN_IF_ERROR(weights->Map());
    return weights->Layer(0).status();
  }
  std::unique_ptr<LayerBuffers> buffers;
  std::unique_ptr<LayerSource> weights;
  std::unique_ptr<OrderedCommunicator> communicator;  // ends first, as in a session
};

TEST_CASE("What is gathered ahead fails with the status of a collective that waits",
          "[trainer][ranks]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteOdd(dir)};
  TrainerRanks two(2, options);
  two.Run([](Rank& rank, int index) -> absl::Status {
    Gathering gathering(rank, {.reshard = Reshard::kAlways});
    TANDEM_RETURN_IF_ERROR(gathering.Begin());
    if (index == 1) {
      rank.communicator->Abort("the controller forms a new group");
      return gathering.weights->Layer(1).status();
    }
    gathering.weights->Prefetch(1);
    const absl::Status first = gathering.weights->Layer(1).status();
    const absl::Status later = gathering.weights->Layer(1).status();
    return later == first ? first : Internal("then {}", later.ToString());
  });
  for (const int rank : {0, 1}) {
    INFO(two[rank].status.ToString());
    REQUIRE(absl::IsAborted(two[rank].status));
    REQUIRE(std::string(two[rank].status.message()).find("new group") != std::string::npos);
  }
}

TEST_CASE("A gather that is under way when its session ends leaves no thread and no waiting rank",
          "[trainer][ranks]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteOdd(dir)};
  TrainerRanks two(2, options);
  std::atomic<bool> ended = false;
  two.Run([&ended](Rank& rank, int index) -> absl::Status {
    {
      Gathering gathering(rank, {.reshard = Reshard::kAlways});
      TANDEM_RETURN_IF_ERROR(gathering.Begin());
      if (index == 1) {
        while (!ended) std::this_thread::yield();
        return gathering.weights->Layer(1).status();
      }
      gathering.weights->Prefetch(1);
    }
    ended = true;
    return absl::OkStatus();
  });
  REQUIRE(two[0].status.ok());
  INFO(two[1].status.ToString());
  REQUIRE(absl::IsAborted(two[1].status));
}

TEST_CASE("Beyond the last and before the first layer nothing is gathered ahead",
          "[trainer][ranks]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteLargeLayers(dir)};
  TrainerRanks two(2, options);
  two.RunOk([](Rank& rank, int) -> absl::Status {
    Gathering gathering(rank, {.reshard = Reshard::kAlways});
    TANDEM_RETURN_IF_ERROR(gathering.Begin());
    LayerSource& weights = *gathering.weights;
    const WeightLayout& layout = rank.session->decoder().layout();
    const auto copy = [&](int layer) -> absl::StatusOr<std::vector<std::byte>> {
      TANDEM_ASSIGN_OR_RETURN(const std::byte* group, weights.Layer(layer));
      return std::vector<std::byte>(group, group + layout.layer_bytes());
    };
    const auto last = static_cast<int>(layout.num_layers()) - 1;
    TANDEM_ASSIGN_OR_RETURN(const auto first_layer, copy(0));
    weights.Prefetch(-1);
    TANDEM_ASSIGN_OR_RETURN(const auto first_again, copy(0));
    TANDEM_ASSIGN_OR_RETURN(const auto last_layer, copy(last));
    weights.Prefetch(last + 1);
    TANDEM_ASSIGN_OR_RETURN(const auto last_again, copy(last));
    if (first_layer != first_again || last_layer != last_again) return Internal("layers moved");
    for (const int none : {-2, last + 1}) {
      if (!absl::IsInvalidArgument(weights.Layer(none).status())) return Internal("layer {}", none);
    }
    return absl::OkStatus();
  });
}

TEST_CASE("W2: ranks gather every range of rows, and publish the digests of a single one",
          "[trainer][ranks]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteOdd(dir)};
  std::vector<Digest> want;
  std::map<std::string, std::vector<std::byte>> tensors;  // of a single rank, by name
  // The norms of q and k have 10 rows: of 12 ranks some hold none of them.
  for (const int world : {1, 2, 3, 12}) {
    TrainerRanks group(world, options);
    std::vector<std::vector<Digest>> digests(world);
    group.RunOk([&](Rank& rank, int index) -> absl::Status {
      TrainingSession& session = *rank.session;
      GatheredWeightSource source(&session.shard(), &session.communicator());
      const WeightLayout& layout = session.decoder().layout();
      for (const TensorPlace& place : layout.places()) {
        const int64_t row_bytes = place.cols() * 2;
        std::vector<std::byte> tensor(place.rows() * row_bytes);
        TANDEM_ASSIGN_OR_RETURN(
            const void* whole,
            source.GatherRows({&place, 0, place.rows(), row_bytes}, tensor.data()));
        if (world == 1) {
          std::memcpy(tensor.data(), whole, tensor.size());
          tensors[place.name] = tensor;
        }
        if (tensor != tensors.at(place.name)) return Internal("{} differs", place.name);
        std::vector<std::byte> memory(7 * row_bytes);
        for (int64_t row = 0; row < place.rows(); row += 7) {
          const int64_t rows = std::min<int64_t>(7, place.rows() - row);
          TANDEM_ASSIGN_OR_RETURN(const void* got,
                                  source.GatherRows({&place, row, rows, row_bytes}, memory.data()));
          if (std::memcmp(got, tensor.data() + row * row_bytes, rows * row_bytes) != 0) {
            return Internal("rows {} of {} differ", row, place.name);
          }
        }
      }
      WeightPublisher publisher(&layout, {8192, 2, nullptr});
      TANDEM_RETURN_IF_ERROR(publisher.Publish(1, source, nullptr).status());
      digests[index] = publisher.digests();
      return absl::OkStatus();
    });
    if (world == 1) want = digests[0];
    for (const std::vector<Digest>& got : digests) REQUIRE(got == want);
  }
}

}  // namespace
}  // namespace tandem
