// Adapters on a device whose memory is not the host's: nothing but the device and its ops touches
// the base, the adapters, their gradients and what is merged, and all bits are the host's.
#include "tests/fakes/guarded_backend.h"
#include "tests/trainer_worker/checkpoint_rig.h"
#include "tests/trainer_worker/guarded_ranks.h"
#include "tests/trainer_worker/trained_weights/lora_group.h"
#include "trainer_worker/trained_weights/adapter_files.h"

namespace tandem {
namespace {

using namespace tandem::testing;

struct LoraVariant {
  int world = 1;
  bool offload_moments = false;
  Recompute recompute = Recompute::kNever;
  Reshard reshard = Reshard::kAuto;
  bool prefetch = true;
  DType dtype = DType::kBFloat16;
  bool float32_file = false;
};

struct LoraDeviceFixture : CheckpointFixture {
  TrainerRanksOptions OptionsOf(const LoraVariant& variant, bool guarded) {
    TrainerRanksOptions other = Offloaded(false, variant.offload_moments);
    other.recompute = variant.recompute;
    other.reshard = variant.reshard;
    other.prefetch = variant.prefetch;
    other.dtype = variant.dtype;
    other.max_micro_batch_tokens = 100;
    other.lr = 1e-2;
    other.lora = {.rank = 3, .alpha = 7, .target_modules = {"all-linear"}};
    if (guarded) other.make_backend = MakeGuardedBackend;
    return other;
  }
  // With the adapters for PEFT beside the training state and the merged model.
  std::string SaveAll(TrainerRanks& group, const std::string& name, int64_t version) {
    const std::string saved = Save(group, name, version);
    group.RunOk([&](Rank& rank, int) {
      return WriteAdapters(saved + "/" + kAdapterFolder, options.model_dir, /*dropout=*/0,
                           LoraOf(rank), rank.ledger.get());
    });
    return saved;
  }
};

// Two steps, what they leave in every place that it can be looked at, and a step of those that
// resume from it.
void RequireSameLoraRun(const LoraVariant& variant) {
  LoraDeviceFixture f;
  TinyModelOptions model = NarrowModel();
  model.float32 = variant.float32_file;
  REQUIRE(WriteTinyModel(f.options.model_dir, model).ok());
  TrainerRanks host(variant.world, f.OptionsOf(variant, false));
  TrainerRanks device(variant.world, f.OptionsOf(variant, true));
  for (TrainerRanks* group : {&host, &device}) {
    group->RunOk(
        [](Rank& rank, int) { return LoraOf(rank).DigestBase(rank.session->communicator()); });
    SetB(*group, 5);
    for (int step = 0; step < 2; ++step) f.TrainStep(*group);
  }
  const std::string& base = LoraOf(host[0]).base_digest();
  REQUIRE(!base.empty());
  REQUIRE(LoraOf(device[0]).base_digest() == base);
  const std::vector<Digest> merged = MergedDigests(host);
  REQUIRE(MergedDigests(device) == merged);
  REQUIRE(OracleDigests(device[variant.world - 1]) == merged);
  for (const bool reference : {false, true}) {
    REQUIRE(ScoresOf(host, f.samples, reference) == ScoresOf(device, f.samples, reference));
  }
  const std::string saved = f.SaveAll(host, "host", 2);
  RequireSameFiles(saved, f.SaveAll(device, "device", 2));

  TrainerRanks resumed(variant.world, f.OptionsOf(variant, true));
  f.Load(resumed, saved, 2);
  f.TrainStep(host);
  f.TrainStep(resumed);
  RequireSameFiles(f.SaveAll(host, "host3", 3), f.SaveAll(resumed, "device3", 3));

  TrainerRanks begun(variant.world, f.OptionsOf(variant, true));
  begun.RunOk([&](Rank& rank, int) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(
        ReadAdapters(saved + "/" + kAdapterFolder, rank.session->spec(), LoraOf(rank)));
    return rank.session->WeightsChanged();
  });
  REQUIRE(MergedDigests(begun) == merged);
}

}  // namespace

TEST_CASE("adapters on a device train, save and resume with the bits of those on the host",
          "[trainer][device][lora]") {
  for (const int world : {1, 2}) {
    RequireSameLoraRun({.world = world});
    RequireSameLoraRun({.world = world,
                        .recompute = Recompute::kAlways,
                        .reshard = Reshard::kAlways,
                        .prefetch = false});
  }
  RequireSameLoraRun({.world = 3, .offload_moments = true, .reshard = Reshard::kAlways});
  RequireSameLoraRun({.world = 2, .dtype = DType::kFloat32});
  RequireSameLoraRun({.float32_file = true});
}

}  // namespace tandem
