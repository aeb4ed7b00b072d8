// A policy under LoRA in training: what it computes with, what it trains, what it sends and keeps.
#include <cmath>
#include <cstring>

#include "common/lora/merge.h"
#include "tests/trainer_worker/trained_weights/lora_group.h"

namespace tandem {
namespace {

using namespace tandem::testing;

constexpr int kRounds = 10;

struct LoraTrainingFixture {
  explicit LoraTrainingFixture(TinyModelOptions model = OddModel()) {
    options.model_dir = (dir.path() / "model").string();
    REQUIRE(WriteTinyModel(options.model_dir, model).ok());
    full = options;
    options.lora = {.rank = 3, .alpha = 7, .target_modules = {"all-linear"}};
    options.lr = full.lr = 1e-2;
  }
  TempDir dir;
  TrainerRanksOptions options, full;
  std::vector<Sample> samples = RandomSamples(6, 3);
};

std::vector<std::byte> BaseBytes(Rank& rank) {
  const FrozenBase& base = LoraOf(rank).base();
  const int64_t bytes =
      base.plan().elements(base.plan().rank()) * static_cast<int64_t>(DTypeBytes(base.dtype()));
  const std::byte* const first = base.Row(0, 0);
  return {first, first + bytes};
}

int64_t BytesOfTag(const Ledger& ledger, const std::string& tag) {
  int64_t bytes = 0;
  for (const LedgerEntry& entry : ledger.Snapshot().entries) {
    if (entry.tag == tag) bytes += entry.current_bytes;
  }
  return bytes;
}

}  // namespace

TEST_CASE("with B at zero the policy is the base, bit for bit", "[trainer][lora]") {
  for (const bool float32_file : {false, true}) {
    TinyModelOptions model = OddModel();
    model.float32 = float32_file;
    LoraTrainingFixture f(model);
    for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
      f.options.dtype = f.full.dtype = dtype;
      TrainerRanks full(1, f.full);
      const LogProbsBySample base = ScoresOf(full, f.samples, false);
      for (const int world : {1, 2, 3}) {
        TrainerRanks group(world, f.options);
        REQUIRE(ScoresOf(group, f.samples, false) == base);
        REQUIRE(ScoresOf(group, f.samples, true) == base);
      }
    }
  }
}

TEST_CASE("gradients of adapters are those of the merged weights, straight through the rounding",
          "[trainer][lora]") {
  LoraTrainingFixture f;
  f.options.max_micro_batch_tokens = f.full.max_micro_batch_tokens = 80;  // several of them
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    f.options.dtype = f.full.dtype = dtype;
    for (const int world : {1, 2}) {
      TrainerRanks group(world, f.options), full(1, f.full);
      SetB(group, 5);
      LoraWeights& lora = LoraOf(group[0]);
      // All weights are trained there, beginning with the merged ones.
      const ShardPlan& plan = full[0].session->plan();
      TrainerRanks merging(1, f.options);
      SetB(merging, 5);
      for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
        const ShardPlan::Piece& piece = plan.mine(tensor);
        float* const to = full[0].session->shard().master() + piece.offset;
        REQUIRE(merging[0]
                    .session->weights()
                    .policy()
                    .CopyRows(tensor, 0, piece.rows, DType::kFloat32, to)
                    .ok());
      }
      REQUIRE(full[0].session->shard().MastersWritten(0, full[0].session->shard().elements()).ok());
      REQUIRE(full[0].session->WeightsChanged().ok());
      REQUIRE(ScoresOf(group, f.samples, false) == ScoresOf(full, f.samples, false));
      TrainOn(group, f.samples);
      TrainOn(full, f.samples);
      for (size_t i = 0; i < lora.spec().targets.size(); ++i) {
        const LoraTarget& target = lora.spec().targets[i];
        const std::vector<float> dw = full.Gradient(target.weight);
        const int64_t r = lora.spec().rank;
        const double s = 7.0 / 3.0;
        double scale = 0;
        for (const float g : dw) scale = std::max<double>(scale, std::abs(g));
        std::vector<float> da, db;
        for (int k = 0; k < world; ++k) {
          ParameterShard& shard = group[k].session->shard();
          for (const size_t which : {size_t{0}, size_t{1}}) {
            const ShardPlan::Piece& piece = shard.plan().mine(2 * i + which);
            std::vector<float>& into = which == 0 ? da : db;
            const float* const from = shard.gradients() + piece.offset;
            into.insert(into.end(), from, from + piece.elements);
          }
        }
        REQUIRE(da.size() == static_cast<size_t>(r * target.in));
        REQUIRE(db.size() == static_cast<size_t>(target.out * r));
        INFO(target.weight << " on " << world << " ranks");
        for (int64_t k = 0; k < r; ++k) {
          for (int64_t row = 0; row < target.out; ++row) {
            double want = 0, size = 0;
            for (int64_t col = 0; col < target.in; ++col) {
              const double term =
                  double{dw[row * target.in + col]} * double{lora.a(i)[k * target.in + col]};
              want += s * term;
              size += std::abs(s * term);
            }
            REQUIRE(std::abs(db[row * r + k] - want) <= 2e-5 * (size + scale));
          }
          for (int64_t col = 0; col < target.in; ++col) {
            double want = 0, size = 0;
            for (int64_t row = 0; row < target.out; ++row) {
              const double term =
                  double{dw[row * target.in + col]} * double{lora.b(i)[row * r + k]};
              want += s * term;
              size += std::abs(s * term);
            }
            REQUIRE(std::abs(da[k * target.in + col] - want) <= 2e-5 * (size + scale));
          }
        }
      }
    }
  }
}

TEST_CASE("ten rounds of train and sync: the base never changes, the rollout holds what is trained",
          "[trainer][lora]") {
  LoraTrainingFixture f;
  for (const int world : {1, 2}) {
    TrainerRanks group(world, f.options);
    std::vector<std::vector<std::byte>> base;
    for (int k = 0; k < world; ++k) base.push_back(BaseBytes(group[k]));
    const LogProbsBySample of_base = ScoresOf(group, f.samples, true);
    std::vector<std::unique_ptr<Receiver>> receivers;
    for (int k = 0; k < world; ++k) {
      receivers.push_back(std::make_unique<Receiver>(*group[k].session));
      receivers.back()->client.scramble = true;  // as weights are that woke from level 2
    }
    LogProbsBySample before = of_base;
    for (int round = 0; round < kRounds; ++round) {
      TrainOn(group, f.samples);
      StepOn(group);
      group.RunOk([&](Rank& rank, int index) -> absl::Status {
        const auto source = rank.session->weights().MakeWeightSource();
        return rank.session->publisher()
            .Publish(round + 1, *source, &receivers[static_cast<size_t>(index)]->client)
            .status();
      });
      const LogProbsBySample now = ScoresOf(group, f.samples, false);
      REQUIRE(now != before);
      before = now;
      for (int k = 0; k < world; ++k) {
        REQUIRE(BaseBytes(group[k]) == base[static_cast<size_t>(k)]);
        REQUIRE(receivers[static_cast<size_t>(k)]->updates.version() == round + 1);
        REQUIRE(receivers[static_cast<size_t>(k)]->storage == receivers[0]->storage);
      }
      // What the rollout computes with is, byte for byte, what the trainer's layers do.
      const WeightLayout& layout = receivers[0]->layout;
      for (const TensorPlace& place : layout.places()) {
        std::vector<std::byte> held(static_cast<size_t>(place.rows() * place.cols() * 2));
        layout.ReadRows(receivers[0]->storage.data() + layout.group_offset(place.layer), place, 0,
                        place.rows(), held.data());
        std::vector<std::byte> trained;
        for (int k = 0; k < world; ++k) {
          const ShardPlan& plan = group[k].session->plan();
          const size_t tensor = plan.IndexOf(*plan.layout().Find(place.name).value());
          std::vector<std::byte> rows(static_cast<size_t>(plan.mine(tensor).elements * 2));
          REQUIRE(group[k]
                      .session->weights()
                      .policy()
                      .CopyRows(tensor, 0, plan.mine(tensor).rows, DType::kBFloat16, rows.data())
                      .ok());
          trained.insert(trained.end(), rows.begin(), rows.end());
        }
        REQUIRE(held == trained);
      }
    }
    REQUIRE(ScoresOf(group, f.samples, true) == of_base);
  }
}

TEST_CASE("any number of ranks publishes equal bits of equal adapters", "[trainer][lora]") {
  LoraTrainingFixture f;
  std::vector<Digest> first;
  for (const int world : {1, 2, 3, 5}) {
    TrainerRanks group(world, f.options);
    SetB(group, 9);
    const std::vector<Digest> digests = MergedDigests(group);
    if (world == 1) first = digests;
    REQUIRE(digests == first);
    SetB(group, 10);
    REQUIRE(MergedDigests(group) != first);
  }
}

TEST_CASE("a version that carries the base instead is refused, and so are older adapters",
          "[trainer][lora]") {
  // Sends rows of another policy than it announces.
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
  LoraTrainingFixture f;
  TrainerRanks group(1, f.options), older(1, f.options);
  SetB(group, 1);
  SetB(older, 2);
  TrainingSession& session = *group[0].session;
  Receiver receiver(session);
  const auto source = session.weights().MakeWeightSource();
  for (WeightRows* const sent : {static_cast<WeightRows*>(&LoraOf(group[0]).base()),
                                 &older[0].session->weights().policy()}) {
    Stale stale(source.get(), sent);
    const absl::Status status = session.publisher().Publish(1, stale, &receiver.client).status();
    INFO(status.ToString());
    REQUIRE(absl::IsDataLoss(status));
    REQUIRE(receiver.updates.version() == -1);
  }
  REQUIRE(session.publisher().Publish(2, *source, &receiver.client).ok());
  REQUIRE(receiver.updates.version() == 2);
}

TEST_CASE("a step whose adapters were not gathered is not published", "[trainer][lora]") {
  LoraTrainingFixture f;
  for (const bool merge : {true, false}) {
    f.options.lora.merge = merge;
    for (const int world : {1, 2}) {
      TrainerRanks group(world, f.options);
      SetB(group, 1);
      const std::vector<Digest> before = MergedDigests(group);
      TrainOn(group, f.samples);
      // TrainingSession::Step without what follows it.
      group.RunOk([](Rank& rank, int) -> absl::Status {
        TrainingSession& session = *rank.session;
        return session.optimizer().Step(session.shard(), session.communicator()).status();
      });
      group.RunOk([&](Rank& rank, int) -> absl::Status {
        Receiver receiver(*rank.session);
        const auto source = rank.session->weights().MakeWeightSource();
        const absl::Status refused =
            rank.session->publisher().Publish(2, *source, &receiver.client).status();
        const bool named = refused.message().find("lora_A.weight is not what was gathered last") !=
                           std::string_view::npos;
        if (absl::IsInternal(refused) && named && receiver.updates.version() == kNoVersion) {
          return absl::OkStatus();
        }
        return absl::UnknownError("published, or refused with: " + refused.ToString());
      });
      group.RunOk([](Rank& rank, int) { return rank.session->WeightsChanged(); });
      REQUIRE(MergedDigests(group) != before);
    }
  }
}

TEST_CASE("the base has no master, gradients or moments, and the reference no copy",
          "[trainer][lora]") {
  TinyModelOptions model = OddModel();
  model.vocab_size = 30000;  // so that it shows
  model.hidden_size = 256;
  model.head_dim = 52;
  LoraTrainingFixture f(model);
  TrainerRanks group(1, f.options);
  TrainOn(group, f.samples);
  StepOn(group);
  group.RunOk([](Rank& rank, int) { return rank.session->FreezeReference(); });
  const Ledger& ledger = *group[0].ledger;
  const int64_t base = 2 * group[0].session->plan().total_elements();
  REQUIRE(base > 12 << 20);
  constexpr int64_t kPage = 2 << 20;
  REQUIRE(BytesOfTag(ledger, "weights") <= base + kPage);
  REQUIRE(BytesOfTag(ledger, "reference") == 0);
  for (const char* tag : {"master", "gradients", "optimizer"}) {
    INFO(tag);
    REQUIRE(BytesOfTag(ledger, tag) <= 2 * kPage);
    REQUIRE(BytesOfTag(ledger, tag) > 0);
  }
}

TEST_CASE("targets without an adapter stay the base's, and the others of a fused weight too",
          "[trainer][lora]") {
  LoraTrainingFixture f;
  f.options.lora.target_modules = {"q_proj", "down_proj"};
  f.options.lora.exclude_modules = {"model.layers.1.mlp.down_proj"};
  TrainerRanks group(2, f.options);
  for (int step = 0; step < 2; ++step) {
    TrainOn(group, f.samples);
    StepOn(group);
  }
  LoraWeights& lora = LoraOf(group[0]);
  REQUIRE(lora.spec().targets.size() == 3);
  const ShardPlan& plan = lora.plan();
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    const ShardPlan::Piece& piece = plan.mine(tensor);
    std::vector<Bf16> merged(static_cast<size_t>(piece.elements)), base(merged);
    REQUIRE(lora.CopyRows(tensor, 0, piece.rows, DType::kBFloat16, merged.data()).ok());
    REQUIRE(lora.base().CopyRows(tensor, 0, piece.rows, DType::kBFloat16, base.data()).ok());
    const bool same = std::memcmp(merged.data(), base.data(), merged.size() * 2) == 0;
    INFO(plan.tensors()[tensor]->name);
    REQUIRE(same == (lora.TargetOf(tensor) < 0 || piece.rows == 0));
  }
}

}  // namespace tandem
