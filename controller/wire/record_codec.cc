#include "controller/wire/record_codec.h"

#include "common/net/worker_codec.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {

v1::StepRecord ToProto(const StepRecord& record) {
  v1::StepRecord proto;
  proto.set_step(record.step);
  proto.set_version(record.version);
  proto.mutable_metrics()->insert(record.metrics.begin(), record.metrics.end());
  for (const PhaseTime& phase : record.phases) {
    v1::PhaseTime* out = proto.add_phases();
    out->set_phase(phase.phase);
    out->set_seconds(phase.seconds);
    out->set_peak_bytes(phase.peak_bytes);
    for (const WorkerMemory& worker : phase.workers) {
      v1::WorkerMemory* memory = out->add_workers();
      memory->set_role(worker.trainer ? v1::ROLE_TRAINER : v1::ROLE_ROLLOUT);
      memory->set_rank(worker.rank);
      *memory->mutable_ledger() = ToProto(worker.ledger);
    }
  }
  proto.set_finished_at(record.finished_at);
  proto.set_undone_by(record.undone_by);
  return proto;
}

v1::SampleRecord ToProto(const SampleRecord& record) {
  v1::SampleRecord proto;
  proto.set_sample_id(record.sample_id);
  proto.set_step(record.step);
  proto.set_group(record.group);
  proto.set_index(record.index);
  proto.set_prompt(record.prompt);
  proto.set_response(record.response);
  proto.set_ground_truth(record.ground_truth);
  proto.set_reward(record.reward);
  proto.set_response_tokens(record.response_tokens);
  proto.set_finish_reason(ToProto(record.finish_reason));
  proto.set_weight_version(record.weight_version);
  proto.set_advantage(record.advantage);
  proto.mutable_reward_terms()->insert(record.reward_terms.begin(), record.reward_terms.end());
  for (const Segment& segment : record.segments) {
    *proto.add_segments() = ToProto(segment);
  }
  proto.set_texts_dropped(!record.texts_kept);
  proto.set_undone_by(record.undone_by);
  return proto;
}

}  // namespace tandem
