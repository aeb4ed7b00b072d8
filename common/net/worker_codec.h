// Converts names of workers, samples, sampling parameters, ledgers, loads and phase reports to
// protobuf and back.
#pragma once

#include <absl/status/statusor.h>

#include "common/types/ledger_snapshot.h"
#include "common/types/sample.h"
#include "common/types/worker_key.h"
#include "common/types/worker_load.h"
#include "tandem/v1/controller.pb.h"
#include "tandem/v1/rollout.pb.h"
#include "tandem/v1/types.pb.h"

namespace tandem {

v1::Role ToProto(WorkerRole role);
// InvalidArgument: it is no worker's.
absl::StatusOr<WorkerRole> FromProto(v1::Role role);

// Of any message that names a worker by its role and rank.
template <typename Message>
void SetWorkerKey(const WorkerKey& key, Message* message) {
  message->set_role(ToProto(key.role));
  message->set_rank(key.rank);
}
// InvalidArgument as FromProto.
template <typename Message>
absl::StatusOr<WorkerKey> WorkerKeyOf(const Message& message) {
  const absl::StatusOr<WorkerRole> role = FromProto(message.role());
  if (!role.ok()) return role.status();
  return WorkerKey{*role, message.rank()};
}

v1::Sample ToProto(const Sample& sample);
Sample FromProto(const v1::Sample& proto);

v1::Segment ToProto(const Segment& segment);
Segment FromProto(const v1::Segment& proto);

v1::Continuation ToProto(const Continuation& continuation);
Continuation FromProto(const v1::Continuation& proto);

v1::SamplingParams ToProto(const SamplingParams& params);
SamplingParams FromProto(const v1::SamplingParams& proto);

v1::FinishReason ToProto(FinishReason reason);
FinishReason FromProto(v1::FinishReason reason);

v1::Ledger ToProto(const LedgerSnapshot& ledger);
LedgerSnapshot FromProto(const v1::Ledger& proto);

v1::GenerationLoad ToProto(const GeneratorLoad& load);
GeneratorLoad FromProto(const v1::GenerationLoad& proto);

v1::TrainingLoad ToProto(const TrainingLoad& load);
TrainingLoad FromProto(const v1::TrainingLoad& proto);

v1::PhaseReport ToProto(const PhaseReport& report);
PhaseReport FromProto(const v1::PhaseReport& proto);

}  // namespace tandem
