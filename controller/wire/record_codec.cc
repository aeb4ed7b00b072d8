#include "controller/wire/record_codec.h"

#include "common/net/worker_codec.h"
#include "controller/store/time_stamp.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {

namespace {

void AddDetails(const StepRecord& record, v1::StepRecord& proto) {
  for (const auto& [name, histogram] : record.histograms) {
    v1::Histogram* const out = proto.add_histograms();
    out->set_name(name);
    out->set_low(histogram.low);
    out->set_high(histogram.high);
    out->mutable_counts()->Assign(histogram.counts.begin(), histogram.counts.end());
  }
  for (const UpdateRecord& update : record.updates) {
    v1::UpdateRecord* const out = proto.add_updates();
    out->set_ordinal(proto.updates_size() - 1);
    out->set_version(update.version);
    out->set_samples(update.samples);
    out->set_tokens(update.tokens);
    out->mutable_metrics()->insert(update.metrics.begin(), update.metrics.end());
  }
  for (const SyncRecord& sync : record.syncs) *proto.add_syncs() = ToProto(sync);
  for (const LoadRecord& load : record.load) {
    v1::LoadRecord* const out = proto.add_load();
    out->set_time(StampText(load.time_us));
    out->set_rank(load.rank);
    *out->mutable_load() = ToProto(load.load);
  }
}

}  // namespace

v1::WeightSyncRecord ToProto(const SyncRecord& record) {
  v1::WeightSyncRecord proto;
  proto.set_time(StampText(record.time_us));
  proto.set_version(record.version);
  proto.set_rank(record.rank);
  proto.set_bytes(record.bytes);
  proto.set_seconds(record.seconds);
  proto.set_digest(record.digest);
  proto.set_checked(record.checked);
  return proto;
}

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
  AddDetails(record, proto);
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
  proto.set_prompt_id(record.prompt_id);
  proto.set_prompt_tokens(record.prompt_tokens);
  if (record.min_log_prob) proto.set_min_log_prob(*record.min_log_prob);
  if (record.repetition) proto.set_repetition(*record.repetition);
  proto.set_arrived_at(StampText(record.arrived_us));
  proto.set_evicted(record.evicted);
  return proto;
}

}  // namespace tandem
