// Trainers under LoRA: what they save, resume from, start with and refuse.
#include <filesystem>
#include <fstream>

#include "common/formats/files.h"
#include "common/formats/peft/merge_checkpoint.h"
#include "common/formats/peft/peft_adapter.h"
#include "tests/trainer_worker/trained_weights/saved_adapters.h"
#include "tests/trainer_worker/trainer_rig.h"

namespace tandem {
namespace {

using namespace tandem::testing;
namespace fs = std::filesystem;

std::set<std::string> FilesIn(const std::string& folder) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.insert(fs::relative(entry.path(), folder).string());
  }
  return files;
}

}  // namespace

TEST_CASE("adapters resume with the bits that they were saved with", "[trainer][lora]") {
  for (const int world : {1, 2}) {
    TrainerRig rig(world, WithRank(4));
    const Saved saved(rig);
    rig.Reset(2, saved.folder, 1);
    rig.TrainStep(1);
    rig.Sync(2);
    for (int rank = 0; rank < world; ++rank) {
      REQUIRE(rig[rank].rollout->receiver.Digests().value() == saved.after);
    }
  }
}

TEST_CASE("the exported adapter, merged into the base on disk, is what was served, bit for bit",
          "[trainer][lora]") {
  TrainerRig rig(2, WithRank(4));
  const Saved saved(rig);
  const std::string adapter = saved.folder + "/" + kAdapterFolder;
  const std::string merged = rig.Folder("merged") + "/model";
  REQUIRE(MergeCheckpoint(rig.model_dir(), adapter, merged, {}).ok());
  const auto spec = LoadModelSpec(rig.model_dir()).value();
  // So is the checkpoint's own export.
  for (const std::string& directory : {merged, saved.folder}) {
    const auto model = HfCheckpoint::Open(directory, spec);
    INFO(model.status().ToString());
    REQUIRE(model.ok());
    for (const TensorPlace& place : rig.layout().places()) {
      std::vector<Bf16> want(static_cast<size_t>(place.rows() * place.cols())), got(want);
      rig.layout().ReadRows(saved.served.data() + rig.layout().group_offset(place.layer), place, 0,
                            place.rows(), want.data());
      REQUIRE((*model)->ReadRows(place.name, 0, place.rows(), DType::kBFloat16, got.data()).ok());
      INFO(place.name);
      REQUIRE(std::memcmp(want.data(), got.data(), want.size() * sizeof(Bf16)) == 0);
    }
  }
}

TEST_CASE("a run may begin with the adapters of another", "[trainer][lora]") {
  TrainerRig rig(1, WithRank(4));
  const Saved saved(rig);
  TrainerOptions options = WithRank(4);
  options.adapter_path = saved.folder + "/" + kAdapterFolder;
  options.keep_reference = true;
  TrainerRig next(2, options);
  next.GiveSamples(RandomSamples(5, 3));
  next.Reset(1);
  next.Sync(0);
  REQUIRE(next[1].rollout->storage == saved.served);
  // The reference is the base without them.
  next.RunOk([](TrainerRig::Rank& rank, int) {
    return rank.trainer->ComputeLogProbs(0, LogProbPolicy::kReference).status();
  });
  TrainerRig base(1, {});
  base.GiveSamples(RandomSamples(5, 3));
  base.Reset(1);
  base.RunOk([](TrainerRig::Rank& rank, int) {
    return rank.trainer->ComputeLogProbs(0, LogProbPolicy::kCurrent).status();
  });
  const LogProbsBySample& want = base[0].samples.received.at("current");
  size_t compared = 0;
  for (int rank = 0; rank < 2; ++rank) {
    for (const auto& [id, log_probs] : next[rank].samples.received.at("reference")) {
      REQUIRE(log_probs == want.at(id));
      ++compared;
    }
  }
  REQUIRE(compared == want.size());
}

TEST_CASE("adapters of another rank, alpha or base are not begun with", "[trainer][lora]") {
  TrainerRig rig(1, WithRank(4));
  const Saved saved(rig);
  for (const auto& [rank, alpha, named] : {std::tuple{8, 8.0, "rank"}, {4, 16.0, "alpha"}}) {
    TrainerOptions options = WithRank(rank, alpha);
    options.adapter_path = saved.folder + "/" + kAdapterFolder;
    TrainerRig other(1, options);
    const absl::Status status = other[0].trainer->Reset(other.ResetFor(1, "", 0)).status();
    INFO(status.ToString());
    REQUIRE(absl::IsInvalidArgument(status));
    REQUIRE(MessageOf(status).find(named) != std::string::npos);
    REQUIRE(MessageOf(status).find(options.adapter_path) != std::string::npos);
  }
}

TEST_CASE("a checkpoint of other adapters, or of none, is refused with both values",
          "[trainer][lora]") {
  TrainerRig four(1, WithRank(4));
  const Saved adapters(four);
  TrainerRig full(1, WithRank(0));
  const Saved all(full);
  struct Case {
    const Saved* saved;
    TrainerOptions resumed;
    std::string said;
  };
  const std::vector<Case> cases = {
      {&adapters, WithRank(8), "saved with model.lora.rank=4, and the run has 8"},
      {&adapters, WithRank(0), "saved with model.lora.rank=4, and the run has 0"},
      {&adapters, WithRank(4, 32), "saved with model.lora.alpha=8, and the run has 32"},
      {&all, WithRank(4), "saved with model.lora.rank=0, and the run has 4"},
  };
  for (const Case& one : cases) {
    TrainerRig other(1, one.resumed);
    const absl::Status status =
        other[0].trainer->Reset(other.ResetFor(2, one.saved->folder, 1)).status();
    INFO(status.ToString());
    REQUIRE(absl::IsInvalidArgument(status));
    REQUIRE(MessageOf(status).find(one.said) != std::string::npos);
    REQUIRE(MessageOf(status).find("set it to") != std::string::npos);
  }
}

TEST_CASE("a checkpoint over another base of the same shapes is refused", "[trainer][lora]") {
  TrainerRig rig(2, WithRank(4));
  const Saved saved(rig);
  TrainerRig other(2, WithRank(4));
  TinyModelOptions changed;
  changed.seed = 2;
  REQUIRE(WriteTinyModel(other.model_dir(), changed).ok());
  other.Run([&](TrainerRig::Rank& rank, int) {
    return rank.trainer->Reset(other.ResetFor(2, saved.folder, 1)).status();
  });
  const absl::Status status = other[0].status;
  INFO(status.ToString());
  REQUIRE(absl::IsInvalidArgument(status));
  REQUIRE(MessageOf(status).find("adapters belong to the weights that they were trained on") !=
          std::string::npos);
}

TEST_CASE("adapters go on in another compute dtype: the base is what its files say",
          "[trainer][lora]") {
  for (const bool float32_file : {false, true}) {
    TrainerOptions options = WithRank(4);
    TrainerRig rig(1, options);
    options.dtype = DType::kFloat32;
    TrainerRig other(2, options);
    for (TrainerRig* const one : {&rig, &other}) {
      REQUIRE(WriteTinyModel(one->model_dir(), {.float32 = float32_file}).ok());
    }
    const Saved saved(rig, /*lora_only=*/true);
    other.Reset(2, saved.folder, 1);
    // One bit of a float32 base that bf16 does not show.
    if (!float32_file) continue;
    const std::string file = other.model_dir() + "/model.safetensors";
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto lowest = static_cast<std::streamoff>(fs::file_size(file) / 8 * 4);
    stream.seekg(lowest);
    const int byte = stream.get();
    stream.seekp(lowest);
    stream.put(static_cast<char>(byte ^ 1));
    stream.close();
    other.Run([&](TrainerRig::Rank& rank, int) {
      return rank.trainer->Reset(other.ResetFor(3, saved.folder, 1)).status();
    });
    INFO(other[0].status.ToString());
    REQUIRE(MessageOf(other[0].status).find("a base model of digest") != std::string::npos);
  }
}

TEST_CASE("save_lora_only saves the adapters and the step, and a run goes on from them",
          "[trainer][lora]") {
  TrainerOptions options = WithRank(4);
  options.save_optimizer = options.save_hf_model = false;  // actor.checkpoint.save_lora_only
  TrainerRig rig(1, options);
  const Saved saved(rig, /*lora_only=*/true);
  REQUIRE(FilesIn(saved.folder) ==
          std::set<std::string>{"training_state-00000-of-00001.safetensors",
                                "lora_adapter/adapter_config.json",
                                "lora_adapter/adapter_model.safetensors"});
  // A and B are there once.
  const auto state =
      SafetensorsFile::Open(saved.folder + "/training_state-00000-of-00001.safetensors");
  INFO(state.status().ToString());
  REQUIRE(state.ok());
  REQUIRE((*state)->tensors().empty());
  rig.Reset(2, saved.folder, 1);
  rig.Sync(1);
  REQUIRE(rig[0].rollout->storage == saved.served);
}

TEST_CASE("adapters saved alone by two ranks resume on one and three with the same masters",
          "[trainer][lora]") {
  TrainerOptions options = WithRank(4);
  options.save_optimizer = options.save_hf_model = false;
  TrainerRig rig(2, options);
  const Saved saved(rig, /*lora_only=*/true);
  for (const int world : {1, 3}) {
    TrainerRig other(world, options);
    other.Reset(2, saved.folder, 1);
    other.Sync(1);
    REQUIRE(other[world - 1].rollout->storage == saved.served);
    // fp32 bits: what it saves is the file that it read.
    const std::string again = other.Folder("again");
    other.RunOk([&](TrainerRig::Rank& rank, int) {
      return rank.trainer->SaveState({.directory = again, .version = 1}).status();
    });
    const std::string file = "/lora_adapter/adapter_model.safetensors";
    REQUIRE(ReadWholeFile(again + file).value() == ReadWholeFile(saved.folder + file).value());
  }
}

TEST_CASE("adapters saved alone that are damaged or missing are refused by name",
          "[trainer][lora]") {
  TrainerOptions options = WithRank(4);
  options.save_optimizer = options.save_hf_model = false;
  TrainerRig rig(1, options);
  const Saved saved(rig, /*lora_only=*/true);
  const auto resumed = [&] {
    return rig[0].trainer->Reset(rig.ResetFor(2, saved.folder, 1)).status();
  };
  const std::string path = saved.folder + "/lora_adapter/adapter_model.safetensors";
  std::string bytes = ReadWholeFile(path).value();
  bytes[bytes.size() - 4] ^= 1;  // the last bit of one element
  std::ofstream(path, std::ios::binary) << bytes;
  const absl::Status damaged = resumed();
  INFO(damaged.ToString());
  REQUIRE(absl::IsDataLoss(damaged));
  REQUIRE(MessageOf(damaged).find(
              "lora_adapter is damaged: the digest of base_model.model.model.layers.") !=
          std::string::npos);
  fs::remove(path);
  const absl::Status missing = resumed();
  INFO(missing.ToString());
  REQUIRE(absl::IsNotFound(missing));
  REQUIRE(MessageOf(missing).find(path) != std::string::npos);
}

TEST_CASE("a check expects the base on disk with the current adapters", "[trainer][lora]") {
  TrainerRig rig(2, WithRank(4));
  rig.GiveSamples(RandomSamples(5, 3));
  rig.Reset(1);
  rig.TrainStep(0);
  rig.Sync(1);
  const auto check = [&](int rank) {
    return rig[rank].trainer->CheckWeights({.rollout_address = std::to_string(rank)});
  };
  REQUIRE(check(0)->weights.ok());
  REQUIRE(check(1)->weights.ok());
  // The base's own row instead of the merged one.
  const auto spec = LoadModelSpec(rig.model_dir()).value();
  const auto model = HfCheckpoint::Open(rig.model_dir(), spec).value();
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const TensorPlace* const place = rig.layout().Find(name).value();
  std::vector<Bf16> rows(static_cast<size_t>(place->rows() * place->cols()));
  REQUIRE(model->ReadRows(name, 0, place->rows(), DType::kBFloat16, rows.data()).ok());
  rig.layout().WriteRows(rig[1].rollout->storage.data() + rig.layout().group_offset(1), *place, 0,
                         place->rows(), rows.data());
  REQUIRE(check(0)->weights.ok());
  const auto found = check(1);
  REQUIRE(found->weights.mismatched == 1);
  REQUIRE(found->weights.first_difference.find(name) != std::string::npos);
}

TEST_CASE("adapters beside the base resume, are checked, and export what they would merge to",
          "[trainer][lora]") {
  for (const int world : {1, 2}) {
    TrainerOptions options = WithRank(4);
    options.session.lora.merge = false;
    TrainerRig rig(world, options);
    const Saved saved(rig);
    const std::string merged = rig.Folder("merged") + "/model";
    REQUIRE(MergeCheckpoint(rig.model_dir(), saved.folder + "/" + kAdapterFolder, merged, {}).ok());
    const auto spec = LoadModelSpec(rig.model_dir()).value();
    const auto ours = HfCheckpoint::Open(saved.folder, spec).value();
    const auto theirs = HfCheckpoint::Open(merged, spec).value();
    for (const TensorSpec& tensor : HfTensors(spec)) {
      std::vector<Bf16> want(static_cast<size_t>(NumElements(tensor.shape))), got(want);
      const int64_t rows = tensor.shape[0];
      REQUIRE(theirs->ReadRows(tensor.name, 0, rows, DType::kBFloat16, want.data()).ok());
      REQUIRE(ours->ReadRows(tensor.name, 0, rows, DType::kBFloat16, got.data()).ok());
      INFO(tensor.name);
      REQUIRE(std::memcmp(want.data(), got.data(), want.size() * sizeof(Bf16)) == 0);
    }
    // Trainers that come back find rollouts that hold the base.
    rig.Reset(2, saved.folder, 1);
    rig.TrainStep(1);
    for (int rank = 0; rank < world; ++rank) rig[rank].rollout->client.bytes_applied = 0;
    rig.Sync(2);
    for (int rank = 0; rank < world; ++rank) {
      REQUIRE(rig[rank].rollout->receiver.Digests().value() == saved.after);
      REQUIRE(rig[rank].rollout->client.bytes_applied ==
              ManifestBytes(ManifestOf(rig.layout(), UpdateScope::kAdapters)));
    }
    // One that lost its weights is sent everything; the other is not lost by it.
    rig[world - 1].rollout->receiver.DropVersion();
    rig.Sync(2);
    for (int rank = 0; rank < world; ++rank) {
      REQUIRE(rig[rank].rollout->receiver.Digests().value() == saved.after);
    }
    const auto check = [&] { return rig[0].trainer->CheckWeights({.rollout_address = "0"}); };
    REQUIRE(check()->weights.ok());
    REQUIRE(rig[0].rollout->receiver.Verify().ok());
    const std::string name = "model.layers.1.mlp.down_proj.lora_B.weight";
    const TensorPlace* const place = rig.layout().Find(name).value();
    const std::vector<Bf16> zero(static_cast<size_t>(place->cols()));
    rig.layout().WriteRows(rig[0].rollout->storage.data() + rig.layout().group_offset(1), *place, 3,
                           1, zero.data());
    REQUIRE(absl::IsDataLoss(rig[0].rollout->receiver.Verify()));
    const auto found = check();
    REQUIRE(found->weights.mismatched == 1);
    REQUIRE(found->weights.first_difference.find(name + "[3, 0]") != std::string::npos);
  }
}

TEST_CASE("targets that the model lacks are refused by name when training starts",
          "[trainer][lora]") {
  TrainerOptions options = WithRank(4);
  options.session.lora.target_modules = {"c_attn"};
  TrainerRig rig(1, options);
  const absl::Status status = rig[0].trainer->Reset(rig.ResetFor(1, "", 0)).status();
  INFO(status.ToString());
  REQUIRE(absl::IsInvalidArgument(status));
  REQUIRE(MessageOf(status).find("c_attn") != std::string::npos);
}

}  // namespace tandem
