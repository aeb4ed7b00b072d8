// A policy whose adapters are computed beside the base: what it computes, learns and sends.
#include <cmath>
#include <set>

#include "tests/trainer_worker/trained_weights/lora_group.h"

namespace tandem {
namespace {

using namespace tandem::testing;

struct UnmergedFixture {
  explicit UnmergedFixture(TinyModelOptions model = OddModel()) {
    full.model_dir = (dir.path() / "model").string();
    REQUIRE(WriteTinyModel(full.model_dir, model).ok());
    full.lr = 1e-2;
    merged = full;
    merged.lora = {.rank = 3, .alpha = 7, .target_modules = {"all-linear"}};
    beside = merged;
    beside.lora.merge = false;
  }
  TempDir dir;
  TrainerRanksOptions full, merged, beside;
  std::vector<Sample> samples = RandomSamples(6, 3);
};

absl::Status PublishTo(Rank& rank, Receiver& receiver, int64_t version, UpdateScope scope) {
  const auto source = rank.session->weights().MakeWeightSource();
  return rank.session->publisher().Publish(version, *source, &receiver.client, scope).status();
}

int64_t BytesOf(const WeightLayout& layout, UpdateScope scope) {
  return ManifestBytes(ManifestOf(layout, scope));
}

}  // namespace

TEST_CASE("merged or beside the base, adapters whose B is zero are the base, bit for bit",
          "[trainer][lora]") {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    TinyModelOptions model = OddModel();
    model.model_type = type;
    UnmergedFixture f(model);
    for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
      f.full.dtype = f.merged.dtype = f.beside.dtype = dtype;
      TrainerRanks full(1, f.full), merged(1, f.merged);
      const LogProbsBySample base = ScoresOf(full, f.samples, false);
      REQUIRE(ScoresOf(merged, f.samples, false) == base);
      for (const int world : {1, 2, 3}) {
        TrainerRanks beside(world, f.beside);
        REQUIRE(ScoresOf(beside, f.samples, false) == base);
        SetB(beside, 5);
        REQUIRE(ScoresOf(beside, f.samples, false) != base);
        REQUIRE(ScoresOf(beside, f.samples, true) == base);  // the reference has no adapters
      }
    }
  }
}

TEST_CASE("in float32 adapters beside the base compute and learn what merged ones do",
          "[trainer][lora]") {
  UnmergedFixture f;
  f.merged.dtype = f.beside.dtype = DType::kFloat32;
  f.merged.max_micro_batch_tokens = f.beside.max_micro_batch_tokens = 80;  // several of them
  for (const std::vector<std::string>& targets :
       {std::vector<std::string>{"all-linear"},
        {"q_proj", "v_proj", "up_proj"},
        {R"(.*layers\.1\..*_proj)", "model.layers.0.self_attn.k_proj"}}) {
    f.merged.lora.target_modules = f.beside.lora.target_modules = targets;
    for (const int world : {1, 2}) {
      TrainerRanks merged(world, f.merged), beside(world, f.beside);
      SetB(merged, 5);
      SetB(beside, 5);
      const LogProbsBySample want = ScoresOf(merged, f.samples, false);
      for (const auto& [id, log_probs] : ScoresOf(beside, f.samples, false)) {
        for (size_t i = 0; i < log_probs.size(); ++i) {
          REQUIRE(log_probs[i] == Approx(want.at(id)[i]).epsilon(1e-4));
        }
      }
      TrainOn(merged, f.samples);
      TrainOn(beside, f.samples);
      const auto ours = AdapterGradientsOf(beside), theirs = AdapterGradientsOf(merged);
      REQUIRE(ours.size() == theirs.size());
      for (size_t tensor = 0; tensor < ours.size(); ++tensor) {
        double largest = 0;
        for (const float g : theirs[tensor]) largest = std::max<double>(largest, std::abs(g));
        REQUIRE(largest > 0);
        INFO(merged[0].session->shard().plan().tensors()[tensor]->name);
        for (size_t i = 0; i < ours[tensor].size(); ++i) {
          REQUIRE(std::abs(ours[tensor][i] - theirs[tensor][i]) <= 1e-4 * largest);
        }
      }
    }
  }
}

TEST_CASE("layers that are recomputed or streamed change no bit of adapters beside the base",
          "[trainer][lora]") {
  UnmergedFixture f;
  f.beside.lora.target_modules = {R"(.*layers\.1\..*_proj)", "model.layers.0.self_attn.k_proj"};
  const auto gradients_with = [&](Recompute recompute, Reshard reshard) {
    TrainerRanksOptions options = f.beside;
    options.recompute = recompute;
    options.reshard = reshard;
    TrainerRanks group(2, options);
    SetB(group, 5);
    TrainOn(group, f.samples);
    return AdapterGradientsOf(group);
  };
  const auto want = gradients_with(Recompute::kNever, Reshard::kNever);
  // One place holds all layers in turn: what another layer left there has no part in it.
  REQUIRE(gradients_with(Recompute::kAlways, Reshard::kAlways) == want);
  REQUIRE(gradients_with(Recompute::kNever, Reshard::kAlways) == want);
}

TEST_CASE("only adapters cross once a rollout holds the base, whatever it does in between",
          "[trainer][lora]") {
  UnmergedFixture f;
  for (const auto& [world, targets] :
       {std::pair(1, std::vector<std::string>{"all-linear"}),
        {2, {"all-linear"}},
        {2, {R"(.*layers\.1\..*_proj)", "model.layers.0.self_attn.k_proj"}}}) {
    f.beside.lora.target_modules = targets;
    TrainerRanks group(world, f.beside);
    REQUIRE(group[0].session->decoder().layout().total_bytes() ==
            WeightBytes(group[0].session->spec()));
    std::vector<std::unique_ptr<Receiver>> receivers;
    for (int k = 0; k < world; ++k) {
      receivers.push_back(std::make_unique<Receiver>(*group[k].session));
      receivers.back()->client.scramble = true;
    }
    const WeightLayout& layout = receivers[0]->layout;
    for (int64_t version = 0; version < 6; ++version) {
      const UpdateScope scope = version == 0 ? UpdateScope::kWhole : UpdateScope::kAdapters;
      for (auto& receiver : receivers) receiver->client.bytes_applied = 0;
      group.RunOk([&](Rank& rank, int index) {
        return PublishTo(rank, *receivers[static_cast<size_t>(index)], version, scope);
      });
      for (auto& receiver : receivers) {
        REQUIRE(receiver->client.bytes_applied == BytesOf(layout, scope));
        REQUIRE(receiver->updates.version() == version);
        REQUIRE(receiver->updates.Verify().ok());
        REQUIRE(receiver->updates.storage().CheckPadding().ok());
        REQUIRE(receiver->storage == receivers[0]->storage);
      }
      TrainOn(group, f.samples);
      StepOn(group);
    }
    REQUIRE(BytesOf(layout, UpdateScope::kAdapters) * 4 < BytesOf(layout, UpdateScope::kWhole));
  }
}

TEST_CASE("adapters are refused where the base is not held, or is another", "[trainer][lora]") {
  UnmergedFixture f;
  TrainerRanks group(1, f.beside);
  TinyModelOptions changed = OddModel();
  changed.seed = 2;
  UnmergedFixture g(changed);
  TrainerRanks other(1, g.beside);
  Receiver receiver(*group[0].session);
  // Nothing is held.
  absl::Status status = PublishTo(group[0], receiver, 0, UpdateScope::kAdapters);
  INFO(status.ToString());
  REQUIRE(absl::IsFailedPrecondition(status));
  REQUIRE(status.message().find("does not hold the base") != std::string::npos);
  REQUIRE(PublishTo(group[0], receiver, 1, UpdateScope::kWhole).ok());
  // The adapters of another base.
  status = PublishTo(other[0], receiver, 2, UpdateScope::kAdapters);
  INFO(status.ToString());
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(status.message().find("belong to another base") != std::string::npos);
  // What was written before that has spoilt the version: everything has to come again.
  REQUIRE(receiver.updates.version() == kNoVersion);
  REQUIRE(absl::IsFailedPrecondition(PublishTo(group[0], receiver, 3, UpdateScope::kAdapters)));
  REQUIRE(PublishTo(group[0], receiver, 3, UpdateScope::kWhole).ok());
  // Weights that slept at level 2 woke as NaN.
  receiver.updates.DropVersion();
  std::fill(receiver.storage.begin(), receiver.storage.end(), std::byte{0xff});
  REQUIRE(absl::IsFailedPrecondition(PublishTo(group[0], receiver, 4, UpdateScope::kAdapters)));
}

TEST_CASE(
    "adapters are refused where a byte of the base changed since it came, until it is sent again",
    "[trainer][lora]") {
  UnmergedFixture f;
  TrainerRanks group(1, f.beside);
  Receiver receiver(*group[0].session);
  const WeightLayout& layout = receiver.layout;
  const TensorPlace* const last = &layout.places()[layout.base_tensors() - 1];
  for (const std::string& name :
       {layout.places()[0].name, std::string("model.layers.1.mlp.up_proj.weight"), last->name}) {
    REQUIRE(PublishTo(group[0], receiver, 0, UpdateScope::kWhole).ok());
    REQUIRE(PublishTo(group[0], receiver, 1, UpdateScope::kAdapters).ok());
    // As the copies of a sleep of level 1 may, which no update has to do with.
    const TensorPlace* const place = layout.Find(name).value();
    std::vector<Bf16> row(static_cast<size_t>(place->cols()));
    std::byte* const group_bytes = receiver.storage.data() + layout.group_offset(place->layer);
    layout.ReadRows(group_bytes, *place, 0, 1, row.data());
    reinterpret_cast<unsigned char*>(row.data())[0] ^= 1;
    layout.WriteRows(group_bytes, *place, 0, 1, row.data());
    const absl::Status status = PublishTo(group[0], receiver, 2, UpdateScope::kAdapters);
    INFO(status.ToString());
    REQUIRE(absl::IsDataLoss(status));
    REQUIRE(status.message().find(name + " of the base changed in this rollout's memory") !=
            std::string_view::npos);
    REQUIRE(receiver.updates.version() == kNoVersion);
    REQUIRE(PublishTo(group[0], receiver, 3, UpdateScope::kWhole).ok());
    REQUIRE(receiver.updates.Verify().ok());
  }
}

TEST_CASE("an update of adapters carries neither the base nor less than all adapters",
          "[trainer][lora]") {
  UnmergedFixture f;
  TrainerRanks group(1, f.beside);
  Receiver receiver(*group[0].session);
  REQUIRE(PublishTo(group[0], receiver, 0, UpdateScope::kWhole).ok());
  const WeightLayout& layout = receiver.layout;
  const Manifest adapters = ManifestOf(layout, UpdateScope::kAdapters);
  Manifest with_base = adapters;
  with_base.push_back(ManifestOf(layout).front());
  Manifest fewer = adapters;
  fewer.pop_back();
  for (const Manifest& manifest : {with_base, fewer, ManifestOf(layout)}) {
    const absl::Status status = receiver.updates.Begin({1, 1}, manifest, UpdateScope::kAdapters);
    REQUIRE(absl::IsInvalidArgument(status));
    REQUIRE_FALSE(receiver.updates.updating());
  }
  // And everything is not the base alone.
  Manifest base = ManifestOf(layout);
  base.resize(layout.base_tensors());
  REQUIRE(absl::IsInvalidArgument(receiver.updates.Begin({1, 1}, base)));
  REQUIRE(receiver.updates.version() == 0);
}

TEST_CASE("the adapters of another version than is announced are refused", "[trainer][lora]") {
  class Stale : public WeightSource {
   public:
    Stale(WeightSource* announced, WeightRows* sent) : announced_(announced), sent_(sent) {}
    absl::StatusOr<std::vector<Digest>> Digests() override { return announced_->Digests(); }
    absl::StatusOr<const void*> GatherRows(const TensorRows& rows, std::byte* dest) override {
      const ShardPlan& plan = sent_->plan();
      const size_t tensor = plan.IndexOf(*plan.layout().Find(rows.place->name).value());
      TANDEM_RETURN_IF_ERROR(sent_->CopyRows(tensor, rows.row, rows.rows, DType::kBFloat16, dest));
      return dest;
    }

   private:
    WeightSource* const announced_;
    WeightRows* const sent_;
  };
  UnmergedFixture f;
  TrainerRanks group(1, f.beside), older(1, f.beside);
  SetB(group, 1);
  SetB(older, 2);
  TrainingSession& session = *group[0].session;
  Receiver receiver(session);
  REQUIRE(PublishTo(group[0], receiver, 0, UpdateScope::kWhole).ok());
  const auto source = session.weights().MakeWeightSource();
  Stale stale(source.get(), &older[0].session->weights().policy());
  const absl::Status status =
      session.publisher().Publish(1, stale, &receiver.client, UpdateScope::kAdapters).status();
  INFO(status.ToString());
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(receiver.updates.version() == kNoVersion);
}

}  // namespace tandem
