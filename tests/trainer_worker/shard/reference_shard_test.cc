// The reference policy, in memory and offloaded to a file.
#include <cstring>
#include <filesystem>

#include "common/base/status.h"
#include "tests/support/bytes_in.h"
#include "tests/trainer_worker/trainer_ranks.h"
#include "trainer_worker/shard/parameter_shard.h"

namespace tandem {
namespace {

using namespace tandem::testing;

constexpr int64_t kPage = 4096;

// Layers of some hundred KB, whose pages can be counted, in sizes that 2 and 3 do not divide.
std::string WriteLayers(const TempDir& dir) {
  TinyModelOptions options;
  options.model_type = "qwen3";
  options.vocab_size = 289;
  options.hidden_size = 130;
  options.num_layers = 5;
  options.num_heads = 5;
  options.num_kv_heads = 1;
  options.head_dim = 26;
  options.intermediate_size = 377;
  const std::string path = (dir.path() / "model").string();
  REQUIRE(WriteTinyModel(path, options).ok());
  return path;
}

struct ScoresOfBoth {
  std::vector<LogProbsBySample> reference, current;
};

// Freezes, steps away from the frozen weights, and scores under both policies, twice.
ScoresOfBoth ScoreBoth(TrainerRanks& group, const std::vector<Sample>& samples) {
  ScoresOfBoth scores{std::vector<LogProbsBySample>(group.size()),
                      std::vector<LogProbsBySample>(group.size())};
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    TrainingSession& session = *rank.session;
    const std::vector<Sample> mine = Share(samples, index, group.size());
    TANDEM_RETURN_IF_ERROR(session.FreezeReference());
    TANDEM_RETURN_IF_ERROR(session.Train(RequestFor(samples), mine).status());
    TANDEM_RETURN_IF_ERROR(session.Step().status());
    TANDEM_ASSIGN_OR_RETURN(scores.reference[index],
                            session.Score(mine, LogProbPolicy::kReference));
    TANDEM_ASSIGN_OR_RETURN(scores.current[index], session.Score(mine));
    TANDEM_ASSIGN_OR_RETURN(const auto again, session.Score(mine, LogProbPolicy::kReference));
    if (again != scores.reference[index]) return Internal("the reference policy moved");
    return session.Train(RequestFor(samples), mine).status();
  });
  return scores;
}

int64_t BytesAt(const Ledger& ledger, const std::string& tag, Location location) {
  for (const LedgerEntry& entry : ledger.Snapshot().entries) {
    if (entry.tag == tag && entry.location == location) return entry.current_bytes;
  }
  return 0;
}

TEST_CASE("An offloaded reference policy gives the bits of one in memory on any number of ranks",
          "[trainer][reference]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteLayers(dir), .max_micro_batch_tokens = 90};
  const std::vector<Sample> samples = RandomSamples(5, 21);
  for (const int world : {1, 2, 3}) {
    for (const Reshard reshard : {Reshard::kAlways, Reshard::kNever}) {
      for (const bool prefetch : {true, false}) {
        options.reshard = reshard;
        options.prefetch = prefetch;
        options.offload_reference = false;
        TrainerRanks resident(world, options);
        options.offload_reference = true;
        TrainerRanks offloaded(world, options);
        const ScoresOfBoth want = ScoreBoth(resident, samples), got = ScoreBoth(offloaded, samples);
        REQUIRE(want.reference != want.current);
        REQUIRE(got.reference == want.reference);
        REQUIRE(got.current == want.current);
        for (const std::string& name : resident.TensorNames()) {
          INFO(name);
          const bool same = resident.Gradient(name) == offloaded.Gradient(name);
          REQUIRE(same);
        }
      }
    }
  }
}

TEST_CASE("An offloaded reference policy is a nameless file and takes no memory of its own",
          "[trainer][reference]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteLayers(dir), .offload_reference = true};
  const std::vector<Sample> samples = RandomSamples(4, 22);
  for (const int world : {1, 2}) {
    TrainerRanks group(world, options);
    TrainOn(group, samples);
    const int64_t gathered = BytesAt(*group[0].ledger, "gather", Location::kDevice);
    ScoreBoth(group, samples);
    for (int index = 0; index < world; ++index) {
      Rank& rank = group[index];
      REQUIRE(BytesAt(*rank.ledger, "reference", Location::kDevice) == 0);
      REQUIRE(BytesAt(*rank.ledger, "reference", Location::kFile) ==
              rank.session->shard().elements() * 2);
      // It is gathered into the places of the weights.
      REQUIRE(BytesAt(*rank.ledger, "gather", Location::kDevice) == gathered);
    }
    for (int index = 0; index < world; ++index) {
      REQUIRE(std::filesystem::is_empty(group.offload_dir(index)));
    }
  }
}

TEST_CASE("What is offloaded does not count as held when the rollout needs memory",
          "[trainer][reference]") {
  const TempDir dir;
  TrainerRanksOptions options{.model_dir = WriteLayers(dir), .offload_reference = true};
  options.reshard = Reshard::kAlways;
  const std::vector<Sample> samples = RandomSamples(3, 23);
  int64_t held = 0;
  {
    TrainerRanks group(1, options);
    ScoreBoth(group, samples);
    const LedgerSnapshot snapshot = group[0].ledger->Snapshot();
    REQUIRE(testing::BytesIn(snapshot, Location::kFile) > 0);
    held = testing::BytesIn(snapshot, Location::kDevice);
  }
  for (const bool fits : {true, false}) {
    options.kept_bytes = held - (fits ? 0 : 1);
    TrainerRanks group(1, options);
    ScoreBoth(group, samples);
    REQUIRE(group[0].session->ReleaseForRollout().ok());
    REQUIRE((BytesOf(group[0].ledger->Snapshot(), "gather") > 0) == fits);
  }
}

TEST_CASE("A group that was gathered from a file leaves the process but for pages it shares",
          "[trainer][reference]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteLayers(dir)};
  TrainerRanks group(1, options);
  const ParameterShard& shard = group[0].session->shard();
  const int64_t bytes = shard.elements() * 2;
  const int64_t groups = shard.plan().layout().num_layers() + 1;
  const auto copy = ReferenceShard::Copy(shard, group.offload_dir(0), nullptr);
  REQUIRE(copy.ok());
  REQUIRE((*copy)->held_bytes() == 0);
  const bool same =
      std::memcmp((*copy)->stored().data, shard.compute(), static_cast<size_t>(bytes)) == 0;
  REQUIRE(same);
  REQUIRE((*copy)->held_bytes() >= bytes);  // read by the comparison
  REQUIRE(bytes > 20 * groups * kPage);
  OrderedCommunicator communicator(group[0].communicator.get());
  const auto buffers = LayerBuffers::Create(HostDevice(), &shard.plan(), nullptr, {});
  REQUIRE(buffers.ok());
  const auto weights = MakeLayerSource(copy->get(), buffers->get(), &communicator);
  REQUIRE(weights->Map().ok());
  for (int layer = -1; layer < groups - 1; ++layer) REQUIRE(weights->Layer(layer).ok());
  REQUIRE((*copy)->held_bytes() <= 2 * groups * kPage);
}

TEST_CASE("A reference policy that has no room names its tag", "[trainer][reference]") {
  const TempDir dir;
  const TrainerRanksOptions options{.model_dir = WriteLayers(dir)};
  TrainerRanks group(1, options);
  const auto refused =
      ReferenceShard::Copy(group[0].session->shard(), (dir.path() / "gone").string(), nullptr);
  REQUIRE(absl::IsFailedPrecondition(refused.status()));
  REQUIRE(std::string(refused.status().message()).find("reference") != std::string::npos);
}

}  // namespace
}  // namespace tandem
