#include "trainer_worker/trained_weights/trained_weights.h"

#include <utility>

#include <fmt/format.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/model_spec/row_ranges.h"
#include "trainer_worker/layers/sharded_gradients.h"
#include "trainer_worker/trained_weights/adapter_files.h"
#include "trainer_worker/trained_weights/adapter_lora.h"
#include "trainer_worker/trained_weights/merged_lora.h"
#include "trainer_worker/weight_sync/expected_weights.h"
#include "trainer_worker/weight_sync/weight_sources.h"

namespace tandem {
namespace {

// The reason why a rollout cannot read the shard directly; empty if it can.
std::string WhyNotDirect(const ShardPlan& plan, const WeightTransport& transport) {
  if (plan.world_size() > 1) {
    return fmt::format("as each of {} ranks has a part of the rows", plan.world_size());
  }
  if (plan.layout().dtype() == DType::kFloat32) {
    return "as float32 compute has no copy of the masters to share";
  }
  return transport.can_share() ? "" : "as the transport cannot share the shard's memory";
}

// The weights of a run that trains all weights of the model.
class FullWeights final : public TrainedWeights {
 public:
  static absl::StatusOr<std::unique_ptr<TrainedWeights>> Create(
      const TrainedWeightsOptions& options, const RankContext& rank) {
    const std::string obstacle = WhyNotDirect(*rank.plan, *options.transport);
    LogInfo("weight sync: {}", obstacle.empty()
                                   ? "direct, the rollout reads the trainer's shard without slots"
                                   : "through slots, " + obstacle);
    std::unique_ptr<FullWeights> weights(new FullWeights(options, rank));
    TANDEM_ASSIGN_OR_RETURN(weights->shard_,
                            ParameterShard::Create(rank.plan,
                                                   {.offload_dir = options.offload_dir,
                                                    .offload_master = options.offload_master,
                                                    .offload_moments = options.offload_moments,
                                                    .direct = obstacle.empty()},
                                                   rank.compute, rank.ledger));
    TANDEM_ASSIGN_OR_RETURN(
        weights->gradients_,
        ShardedGradients::Create(weights->shard_.get(), rank.communicator, rank.ledger));
    return weights;
  }

  ParameterShard& trained() override { return *shard_; }
  WeightRows& policy() override { return *shard_; }
  WeightRows& exported() override { return *shard_; }
  absl::StatusOr<WeightRows*> reference() override {
    if (reference_ != nullptr) return reference_.get();
    return FailedPrecondition(
        "no reference policy is kept; set actor.use_kl_loss or algorithm.use_kl_in_reward");
  }
  absl::Status FreezeReference() override {
    const std::string directory = options_.offload_reference ? options_.offload_dir : "";
    TANDEM_ASSIGN_OR_RETURN(reference_, ReferenceShard::Copy(*shard_, directory, rank_.ledger));
    return absl::OkStatus();
  }
  GradientAccumulator& gradients() override { return *gradients_; }
  absl::Status OnWeightsChanged() override { return absl::OkStatus(); }
  std::unique_ptr<WeightSource> MakeWeightSource() override {
    return std::make_unique<GatheredWeightSource>(shard_.get(), rank_.communicator);
  }

  absl::StatusOr<std::unique_ptr<ExpectedWeights>> OpenExpected(
      const std::string& directory) override {
    const DType dtype = rank_.plan->layout().dtype();
    if (!directory.empty()) {
      return CheckpointWeights::Open(directory, *rank_.spec, dtype, rank_.compute.device,
                                     rank_.ledger);
    }
    const auto element = static_cast<int64_t>(DTypeBytes(dtype));
    return MasterWeights::Create(
        shard_.get(), rank_.communicator, rank_.ledger,
        {.dtype = dtype, .scratch_bytes = RowScratchBytes(*rank_.spec, element)});
  }

  absl::Status Load(const LoadRequest& request, Optimizer& optimizer) override {
    return Agree(*rank_.communicator, LoadFiles(request, optimizer), "loading the model").status();
  }
  absl::StatusOr<int64_t> Save(SaveOptions options, const Optimizer& optimizer) override {
    options.settings = LoraSettings(nullptr);
    return SaveState(options, *rank_.spec, *shard_, *shard_, optimizer, *rank_.communicator,
                     rank_.ledger);
  }
  void DescribeMemory(TrainerMemoryOptions& options) const override {
    options.reference = reference_ != nullptr;
  }

 private:
  FullWeights(TrainedWeightsOptions options, const RankContext& rank)
      : options_(std::move(options)), rank_(rank) {}

  absl::Status LoadFiles(const LoadRequest& request, Optimizer& optimizer) {
    if (request.checkpoint_dir.empty() || request.keep_reference) {
      TANDEM_RETURN_IF_ERROR(LoadModel(options_.model_dir, *rank_.spec, *shard_));
    }
    // The reference is the model that the run started with, even after a resume.
    if (request.keep_reference) TANDEM_RETURN_IF_ERROR(FreezeReference());
    if (request.checkpoint_dir.empty()) return absl::OkStatus();
    TANDEM_ASSIGN_OR_RETURN(const int64_t version, LoadState(request.checkpoint_dir, *shard_,
                                                             optimizer, LoraSettings(nullptr)));
    return CheckSavedVersion(request.checkpoint_dir, version, request.version);
  }

  const TrainedWeightsOptions options_;
  const RankContext rank_;
  std::unique_ptr<ParameterShard> shard_;
  std::unique_ptr<GradientAccumulator> gradients_;
  std::unique_ptr<ReferenceShard> reference_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TrainedWeights>> MakeTrainedWeights(
    const TrainedWeightsOptions& options, const ModelSpec& base, const RankContext& rank) {
  if (options.lora.rank == 0) return FullWeights::Create(options, rank);
  const Device& device = *rank.compute.device;
  if (!device.is_host() && options.lora.dropout > 0) {
    return FailedPrecondition(
        "model.lora.dropout={}: dropout is built for CPUs only so far, and this trainer computes "
        "on {}: set it to 0, or trainer.device=cpu",
        options.lora.dropout, device.name());
  }
  if (options.lora.merge) return MergedLora::Create(options, base, rank);
  return AdapterLora::Create(options, base, rank);
}

}  // namespace tandem
