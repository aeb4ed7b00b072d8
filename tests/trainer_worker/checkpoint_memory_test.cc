// What ranks hold while they load, save, resume and check: their shards and a range of rows.
#include "common/comm/communicator.h"
#include "common/device/device_memory.h"
#include "common/memory/memory_formulas.h"
#include "common/model_spec/row_ranges.h"
#include "tests/support/units.h"
#include "tests/trainer_worker/checkpoint_rig.h"
#include "trainer_worker/weight_sync/expected_weights.h"

namespace tandem {
namespace {

using namespace tandem::testing;

// 17 million parameters in few tensors, of up to 8 MiB in bf16: a range, a tensor, a shard and a
// copy are told apart.
TinyModelOptions LargeModel() {
  return {.hidden_size = 1024,
          .num_layers = 1,
          .num_heads = 16,
          .num_kv_heads = 16,
          .head_dim = 64,
          .intermediate_size = 4096};
}

// Bytes more than at the start, at the most, while `body` runs.
int64_t LedgerGrowth(Rank& rank, const std::function<absl::Status()>& body) {
  const int64_t before = rank.ledger->Snapshot().memory_bytes;
  rank.ledger->ResetPeaks();
  rank.status = body();
  return rank.ledger->Snapshot().memory_peak_bytes - before;
}

// The same as the system counts it: pages of files count too.
int64_t ProcessGrowth(const std::function<absl::Status()>& body) {
  ResetProcessPeak();
  const int64_t before = ReadProcessMemory().resident;
  const absl::Status status = body();
  INFO(status.ToString());
  REQUIRE(status.ok());
  return ReadProcessMemory().peak_resident - before;
}

}  // namespace

TEST_CASE("Ranks load, save, resume and check with a shard and a range of rows each",
          "[checkpoint][memory]") {
  CheckpointFixture f;
  REQUIRE(WriteTinyModel(f.options.model_dir, LargeModel()).ok());
  const auto spec = LoadModelSpec(f.options.model_dir);
  REQUIRE(spec.ok());
  const int64_t range = RegionBytes(RowScratchBytes(*spec, 2));
  REQUIRE(range == 2 * kMiB);
  for (const bool moments : {false, true}) {
    TrainerRanks group(2, f.options);
    const int64_t elements = group[0].session->shard().elements();
    const int64_t masters = RegionBytes(4 * elements), copy = RegionBytes(2 * elements);
    // Loaded: masters and their rounding, and never more than that.
    for (int rank = 0; rank < 2; ++rank) {
      const LedgerSnapshot ledger = group[rank].ledger->Snapshot();
      REQUIRE(ledger.memory_bytes <= masters + copy);
      REQUIRE(ledger.memory_peak_bytes <= masters + copy);
      REQUIRE(ledger.memory_peak_bytes < 4 * spec->parameters());
    }
    if (moments) {
      group.RunOk([](Rank& rank, int) { return rank.session->shard().MapMoments(); });
    }
    const SaveOptions save{.directory = f.Folder(moments ? "with" : "without"),
                           .tokenizer_dir = f.options.model_dir,
                           .version = 1};
    int64_t growth[2] = {};
    group.RunOk([&](Rank& rank, int index) {
      growth[index] = LedgerGrowth(rank, [&] { return SaveRank(rank, save).status(); });
      return rank.status;
    });
    for (const int64_t bytes : growth) REQUIRE(bytes == range);
    group.RunOk([&](Rank& rank, int index) {
      growth[index] = LedgerGrowth(rank, [&]() -> absl::Status {
        TrainingSession& session = *rank.session;
        TANDEM_ASSIGN_OR_RETURN(
            const auto expected,
            MasterWeights::Create(&session.shard(), &session.communicator(), rank.ledger.get(),
                                  {.scratch_bytes = RowScratchBytes(session.spec(), 2)}));
        return CheckWeights(session.decoder().layout(), *expected, nullptr).status();
      });
      return rank.status;
    });
    for (const int64_t bytes : growth) REQUIRE(bytes == range);

    TrainerRanks resumed(2, f.options);
    resumed.RunOk([&](Rank& rank, int index) {
      growth[index] = LedgerGrowth(rank, [&] {
        TrainingSession& session = *rank.session;
        return LoadState(save.directory, session.shard(), session.optimizer()).status();
      });
      return rank.status;
    });
    for (const int64_t bytes : growth) REQUIRE(bytes <= (moments ? 2 * masters : 0));
    for (const std::string& name : group.TensorNames()) {
      REQUIRE((group.Master(name) == resumed.Master(name)));
    }
  }
}

TEST_CASE(
    "Offloaded masters and moments pass through memory by ranges as they are loaded and saved",
    "[checkpoint][memory][offload]") {
  CheckpointFixture f;
  REQUIRE(WriteTinyModel(f.options.model_dir, LargeModel()).ok());
  const auto spec = LoadModelSpec(f.options.model_dir);
  REQUIRE(spec.ok());
  const WeightLayout layout = WeightLayout::Build(*spec, DType::kBFloat16);
  const ShardPlan plan(&layout, 0, 1);
  const auto ops = CreateCpuShardOps(std::make_shared<ThreadPool>(1));
  SoloCommunicator communicator;
  Ledger ledger;
  const ShardOptions offloaded{.offload_dir = f.Folder("offload"),
                               .offload_master = true,
                               .offload_moments = true,
                               .direct = true};  // as a single rank's is
  const auto made = ParameterShard::Create(&plan, offloaded, {HostDevice(), ops.get()}, &ledger);
  REQUIRE(made.ok());
  ParameterShard& shard = **made;
  Optimizer optimizer({});
  // A range of each array and of the files, scratch, and pages that the system maps around them.
  // The masters alone take 65 MiB.
  const int64_t slack = 12 * kMiB;

  const int64_t loading =
      ProcessGrowth([&] { return LoadModel(f.options.model_dir, *spec, shard); });
  INFO(loading << " bytes while loading " << shard.elements() << " parameters");
  // The rounded copy has its pages before. Of the file the system may map pages ahead of those that
  // are read.
  const auto file =
      static_cast<int64_t>(std::filesystem::file_size(f.options.model_dir + "/model.safetensors"));
  REQUIRE(loading <= file + slack);
  REQUIRE(file + slack < 4 * shard.elements());

  REQUIRE(shard.MapMoments().ok());
  const SaveOptions save{
      .directory = f.Folder("saved"), .tokenizer_dir = f.options.model_dir, .version = 7};
  const int64_t saving = ProcessGrowth([&] {
    return SaveState(save, *spec, shard, shard, optimizer, communicator, &ledger).status();
  });
  INFO(saving << " bytes while saving");
  REQUIRE(saving <= slack);

  const int64_t resuming =
      ProcessGrowth([&] { return LoadState(save.directory, shard, optimizer).status(); });
  INFO(resuming << " bytes while resuming");
  REQUIRE(resuming <= slack);
}

}  // namespace tandem
