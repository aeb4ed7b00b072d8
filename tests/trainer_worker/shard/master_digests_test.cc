// A publisher's digests come from the masters, so bytes without the step are found.
#include <algorithm>
#include <functional>
#include <vector>

#include "tests/fakes/fake_update_client.h"
#include "tests/support/own_progress.h"
#include "tests/trainer_worker/trainer_ranks.h"
#include "trainer_worker/weight_sync/weight_sources.h"

namespace tandem {
namespace {

using namespace tandem::testing;

struct MasterDigestsFixture {
  MasterDigestsFixture() {
    options.model_dir = (dir.path() / "model").string();
    REQUIRE(WriteTinyModel(options.model_dir, OddModel()).ok());
  }
  TempDir dir;
  TrainerRanksOptions options;
  std::vector<Sample> samples = RandomSamples(6, 3);
};

// Of what the ranks hold after rounding, gathered tensor by tensor.
absl::StatusOr<std::vector<Digest>> GatheredDigests(Rank& rank) {
  TrainingSession& session = *rank.session;
  GatheredWeightSource source(&session.shard(), &session.communicator());
  std::vector<Digest> digests;
  for (const TensorPlace& place : session.decoder().layout().places()) {
    const int64_t row_bytes =
        place.cols() * static_cast<int64_t>(DTypeBytes(session.decoder().layout().dtype()));
    std::vector<std::byte> tensor(place.rows() * row_bytes);
    TANDEM_ASSIGN_OR_RETURN(const void* rows,
                            source.GatherRows({&place, 0, place.rows(), row_bytes}, tensor.data()));
    digests.push_back(DigestOf(rows, place.rows() * row_bytes));
  }
  return digests;
}

// Notes how often the calling thread had moved when rows were asked for.
class MovesAtRows : public WeightRows {
 public:
  explicit MovesAtRows(WeightRows& rows) : rows_(rows) {}
  const ShardPlan& plan() const override { return rows_.plan(); }
  Device* device() const override { return rows_.device(); }
  absl::Status CopyRows(size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override {
    moves.push_back(OwnProgress().moves);
    return rows_.CopyRows(tensor, row, rows, dtype, out);
  }

  std::vector<int64_t> moves;

 private:
  WeightRows& rows_;
};

}  // namespace

TEST_CASE("Every range of rows that is digested is progress", "[trainer][digest]") {
  MasterDigestsFixture f;
  TrainerRanks group(1, f.options);
  Rank& rank = group[0];
  MovesAtRows rows(rank.session->weights().policy());
  const auto digests =
      RowDigests::Create(&rows, DType::kBFloat16, rank.shard_ops.get(), rank.ledger.get());
  REQUIRE(digests.ok());
  REQUIRE((*digests)->Take([](size_t) { return true; }).ok());
  REQUIRE(rows.moves.size() >= rows.plan().tensors().size());
  // Ascending, and none is there twice.
  REQUIRE(std::adjacent_find(rows.moves.begin(), rows.moves.end(), std::greater_equal<>()) ==
          rows.moves.end());
}

TEST_CASE("Digests of masters are those of the rounded tensors, on any number of ranks",
          "[trainer][digest]") {
  MasterDigestsFixture f;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    f.options.dtype = dtype;
    for (const int world : {1, 2, 3}) {
      TrainerRanks group(world, f.options);
      for (int step = 0; step < 2; ++step) {
        group.RunOk([&](Rank& rank, int) -> absl::Status {
          TANDEM_ASSIGN_OR_RETURN(const auto masters, rank.session->shard().digests().OfTensors(
                                                          rank.session->communicator()));
          TANDEM_ASSIGN_OR_RETURN(const auto gathered, GatheredDigests(rank));
          return masters == gathered ? absl::OkStatus() : Internal("digests differ");
        });
        TrainOn(group, f.samples);
        StepOn(group);
      }
    }
  }
}

TEST_CASE("A publisher that sends what it had before the step is refused by the rollout",
          "[trainer][digest]") {
  MasterDigestsFixture f;
  for (const bool offload : {false, true}) {
    f.options.offload_master = offload;
    TrainerRanks group(1, f.options);
    TrainingSession& session = *group[0].session;
    const WeightLayout& layout = session.decoder().layout();
    std::vector<std::byte> storage(layout.total_bytes());
    UpdateTransaction receiver(
        CreateCpuStorageOps(&layout, storage.data(), std::make_shared<ThreadPool>(1)));
    FakeUpdateClient client(&receiver);
    GatheredWeightSource source(&session.shard(), &session.communicator());
    REQUIRE(session.publisher().Publish(0, source, &client).ok());
    REQUIRE(receiver.version() == 0);

    const auto* held = session.shard().compute();
    const std::vector<std::byte> before(held, held + session.shard().elements() * 2);
    TrainOn(group, f.samples);
    StepOn(group);
    // The step rounds into a copy that nobody sends: the old one is put back.
    std::memcpy(const_cast<std::byte*>(held), before.data(), before.size());
    const absl::Status status = session.publisher().Publish(1, source, &client).status();
    REQUIRE(absl::IsDataLoss(status));
    REQUIRE(std::string(status.message()).find("of version 1 arrived damaged") !=
            std::string::npos);
    REQUIRE(receiver.version() == kNoVersion);
  }
}

TEST_CASE("Masters that were never taken are not a digest", "[trainer][digest]") {
  MasterDigestsFixture f;
  TrainerRanks group(2, f.options);
  group.Run([](Rank& rank, int) {
    const MasterDigests none(&rank.session->plan());
    return none.OfTensors(rank.session->communicator()).status();
  });
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(group[rank].status.code() == absl::StatusCode::kInternal);
  }
}

}  // namespace tandem
