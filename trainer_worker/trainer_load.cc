// How a trainer comes by its weights: Trainer::Reset's half that reads files.
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/comm/agreement.h"
#include "trainer_worker/checkpoint.h"
#include "trainer_worker/trained_weights/adapter_files.h"
#include "trainer_worker/trainer.h"

namespace tandem {
namespace {

// A collective gives up before the call that waits for it, so that the name of the absent rank gets
// through to the controller.
constexpr double kShareOfTimeout = 0.9;

}  // namespace

absl::Status Trainer::StartSession(const ResetCommand& command) {
  session_.reset();
  SetVersion(-1);
  changed_.Reset();
  last_step_ = {};
  trained_step_ = -1;
  TANDEM_RETURN_IF_ERROR(group_.Join({.rank = options_.rank,
                                      .world_size = command.world_size,
                                      .rendezvous = command.rendezvous,
                                      .generation = command.generation,
                                      .deadline = kShareOfTimeout * options_.rpc_timeout,
                                      .single_channel = options_.single_channel}));
  Communicator& group = *group_.communicator();
  TANDEM_RETURN_IF_ERROR(Agree(group, LoadModelFiles(command), "loading the model").status());
  if (LoraWeights* const lora = session_->lora(); lora != nullptr) {
    TANDEM_RETURN_IF_ERROR(lora->DigestBase(session_->communicator()));
  }
  TANDEM_RETURN_IF_ERROR(Agree(group, LoadTrained(command), "loading the model").status());
  return session_->WeightsChanged();
}

absl::Status Trainer::LoadModelFiles(const ResetCommand& command) {
  SessionOptions session_options = options_.session;
  session_options.publish.transport = transport_;
  TANDEM_ASSIGN_OR_RETURN(session_, TrainingSession::Create(session_options,
                                                            {.device = backend_->device(),
                                                             .forward = forward_.get(),
                                                             .backward = backward_.get(),
                                                             .shard = shard_ops_.get()},
                                                            group_.communicator(), &ledger_));
  TrainingSession& session = *session_;
  TANDEM_RETURN_IF_ERROR(backend_->CheckModel(session.spec()));
  const std::string& model_dir = options_.session.model_dir;
  if (LoraWeights* const lora = session.lora(); lora != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, HfCheckpoint::Open(model_dir, session.spec()));
    return lora->base().Load(*checkpoint);
  }
  if (command.checkpoint_dir.empty() || options_.keep_reference) {
    TANDEM_RETURN_IF_ERROR(LoadModel(model_dir, session.spec(), session.shard()));
  }
  // The reference is the model that the run began with, also after a resume.
  return options_.keep_reference ? session.FreezeReference() : absl::OkStatus();
}

absl::Status Trainer::LoadTrained(const ResetCommand& command) {
  TrainingSession& session = *session_;
  LoraWeights* const lora = session.lora();
  if (command.checkpoint_dir.empty()) {
    if (lora == nullptr) return absl::OkStatus();
    if (!options_.adapter_path.empty()) {
      LogInfo("begins with the adapters in {}", options_.adapter_path);
    }
    return options_.adapter_path.empty()
               ? InitAdapters(options_.seed, *lora)
               : ReadAdapters(options_.adapter_path, session.spec(), *lora);
  }
  OpenMasters adapters;
  const std::string folder = command.checkpoint_dir + "/" + kAdapterFolder;
  if (lora != nullptr) {
    adapters = [&] { return OpenAdapterMasters(folder, session.spec(), *lora); };
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t version,
                          LoadState(command.checkpoint_dir, session.shard(), session.optimizer(),
                                    LoraSettings(lora), folder, adapters));
  if (version != command.version) {
    return MakeStatus(absl::StatusCode::kDataLoss,
                      "the checkpoint {} holds weight version {}, but {} was expected",
                      command.checkpoint_dir, version, command.version);
  }
  return absl::OkStatus();
}

}  // namespace tandem
