// Weight checks compare with the masters, and exports are written from them.
#include <algorithm>
#include <cstring>

#include "common/base/status.h"
#include "common/model_spec/row_ranges.h"
#include "tests/common/weights/memory_rollout.h"
#include "tests/trainer_worker/trainer_ranks.h"
#include "trainer_worker/weight_sync/expected_weights.h"
#include "trainer_worker/weight_sync/weight_sources.h"

namespace tandem {
namespace {

using namespace tandem::testing;

struct MasterWeightsFixture {
  MasterWeightsFixture() {
    options.model_dir = (dir.path() / "model").string();
    REQUIRE(WriteTinyModel(options.model_dir, OddModel()).ok());
  }
  TempDir dir;
  TrainerRanksOptions options;
};

absl::StatusOr<std::unique_ptr<MasterWeights>> MasterRowsOf(Rank& rank,
                                                            MasterWeightsOptions options) {
  options.scratch_bytes = kRowRangeBytes;
  return MasterWeights::Create(&rank.session->shard(), &rank.session->communicator(),
                               rank.ledger.get(), options);
}

// Gathers `group`'s rounded copies into a storage, as a sync would without its digests.
void AdoptCopies(TrainerRanks& group, std::vector<std::unique_ptr<MemoryRollout>>& rollouts) {
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    GatheredWeightSource source(&rank.session->shard(), &rank.session->communicator());
    MemoryRollout& rollout = *rollouts[static_cast<size_t>(index)];
    std::vector<std::byte> tensor;
    for (const TensorPlace& place : rollout.layout->places()) {
      const int64_t row_bytes = place.cols() * 2;
      tensor.resize(static_cast<size_t>(place.rows() * row_bytes));
      TANDEM_ASSIGN_OR_RETURN(
          const void* rows, source.GatherRows({&place, 0, place.rows(), row_bytes}, tensor.data()));
      rollout.layout->WriteRows(rollout.storage.data() + rollout.layout->group_offset(place.layer),
                                place, 0, place.rows(), rows);
    }
    return rollout.receiver.AdoptVersion(0);
  });
}

std::vector<std::unique_ptr<MemoryRollout>> RolloutsOf(TrainerRanks& group) {
  std::vector<std::unique_ptr<MemoryRollout>> rollouts;
  for (int rank = 0; rank < group.size(); ++rank) {
    rollouts.push_back(std::make_unique<MemoryRollout>(group[rank].session->decoder().layout()));
  }
  return rollouts;
}

std::vector<WeightCheckReport> CheckAll(TrainerRanks& group,
                                        std::vector<std::unique_ptr<MemoryRollout>>& rollouts) {
  std::vector<WeightCheckReport> reports(rollouts.size());
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const auto expected, MasterRowsOf(rank, {}));
    MemoryReader reader(*rollouts[static_cast<size_t>(index)]);
    TANDEM_ASSIGN_OR_RETURN(reports[static_cast<size_t>(index)],
                            CheckWeights(rank.session->decoder().layout(), *expected, &reader));
    return absl::OkStatus();
  });
  return reports;
}

}  // namespace

TEST_CASE("Rows are the masters, rounded or not, on the ranks that receive them",
          "[trainer][check]") {
  MasterWeightsFixture f;
  for (const bool offload : {false, true}) {
    f.options.offload_master = offload;
    for (const int world : {1, 2, 3, 12}) {
      TrainerRanks group(world, f.options);
      std::map<std::string, std::vector<float>> masters;
      for (const std::string& name : group.TensorNames()) masters[name] = group.Master(name);
      for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
        for (const int receiver : {-1, 0}) {
          group.RunOk([&](Rank& rank, int index) -> absl::Status {
            TANDEM_ASSIGN_OR_RETURN(const auto rows,
                                    MasterRowsOf(rank, {.dtype = dtype, .receiver = receiver}));
            for (const TensorPlace& place : rank.session->decoder().layout().places()) {
              const auto element = static_cast<int64_t>(DTypeBytes(dtype));
              for (int64_t row = 0; row < place.rows(); row += 7) {
                const int64_t count = std::min<int64_t>(7, place.rows() - row);
                TANDEM_ASSIGN_OR_RETURN(const void* got,
                                        rows->Rows({&place, row, count, place.cols() * element}));
                if (receiver >= 0 && index != receiver) {
                  if (got != nullptr) return Internal("rank {} received {}", index, place.name);
                  continue;
                }
                for (int64_t i = 0; i < count * place.cols(); ++i) {
                  const float want = masters[place.name][row * place.cols() + i];
                  const bool same = dtype == DType::kFloat32
                                        ? static_cast<const float*>(got)[i] == want
                                        : static_cast<const Bf16*>(got)[i] == ToBf16(want);
                  if (!same) return Internal("{}, row {}: element {}", place.name, row, i);
                }
              }
            }
            return absl::OkStatus();
          });
        }
      }
    }
  }
}

TEST_CASE("A rounded copy that changed under intact masters is found by the check",
          "[trainer][check]") {
  MasterWeightsFixture f;
  for (const int world : {1, 2}) {
    TrainerRanks group(world, f.options);
    auto rollouts = RolloutsOf(group);
    AdoptCopies(group, rollouts);
    for (const WeightCheckReport& report : CheckAll(group, rollouts)) REQUIRE(report.ok());

    const std::string name = "model.layers.1.mlp.down_proj.weight";
    const ShardPlan& plan = group[0].session->plan();
    const TensorPlace& place = **plan.layout().Find(name);
    auto* const copy =
        reinterpret_cast<Bf16*>(const_cast<std::byte*>(group[0].session->shard().compute()));
    copy[plan.mine(plan.IndexOf(place)).offset + 2 * place.cols() + 3] = ToBf16(123.0f);
    // What the rollouts hold is still right.
    for (const WeightCheckReport& report : CheckAll(group, rollouts)) REQUIRE(report.ok());
    // What they would be sent is not.
    AdoptCopies(group, rollouts);
    for (const WeightCheckReport& report : CheckAll(group, rollouts)) {
      INFO(report.first_difference);
      REQUIRE(report.checked == report.expected);
      REQUIRE(report.mismatched == 1);
      REQUIRE(report.differing == std::vector<std::string>{name});
      REQUIRE(report.first_difference.rfind(name + "[2, 3]: the rollout holds 123, ", 0) == 0);
    }
  }
}

TEST_CASE("Ranks whose rollouts differ in different tensors each name their own",
          "[trainer][check]") {
  MasterWeightsFixture f;
  TrainerRanks group(3, f.options);
  auto rollouts = RolloutsOf(group);
  AdoptCopies(group, rollouts);
  const std::vector<std::string> names = {"model.norm.weight", "",
                                          "model.layers.0.self_attn.v_proj.weight"};
  for (const size_t rank : {0, 2}) {
    const WeightLayout& layout = *rollouts[rank]->layout;
    const TensorPlace& place = **layout.Find(names[rank]);
    const std::vector<Bf16> row(static_cast<size_t>(place.cols()), ToBf16(77.0f));
    layout.WriteRows(rollouts[rank]->storage.data() + layout.group_offset(place.layer), place, 4, 1,
                     row.data());
  }
  const std::vector<WeightCheckReport> reports = CheckAll(group, rollouts);
  REQUIRE(reports[1].ok());
  for (const size_t rank : {0, 2}) {
    INFO(reports[rank].first_difference);
    REQUIRE(reports[rank].mismatched == 1);
    REQUIRE(reports[rank].first_difference.rfind(names[rank] + "[4, 0]: the rollout holds 77,",
                                                 0) == 0);
  }
}

TEST_CASE("A rank without memory for a check or an export tells the others", "[trainer][check]") {
  MasterWeightsFixture f;
  TrainerRanks group(2, f.options);
  group.Run([](Rank& rank, int index) {
    const int64_t none_has = int64_t{1} << 47;
    return MasterWeights::Create(&rank.session->shard(), &rank.session->communicator(),
                                 rank.ledger.get(),
                                 {.scratch_bytes = index == 1 ? none_has : kRowRangeBytes})
        .status();
  });
  REQUIRE(absl::IsResourceExhausted(group[1].status));
  REQUIRE(absl::IsAborted(group[0].status));
  REQUIRE(OriginOf(group[0].status) == FailureOrigin::kAnotherRank);
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(BytesOf(group[rank].ledger->Snapshot(), "gather") == 0);
  }
}

}  // namespace tandem
