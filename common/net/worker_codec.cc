#include "common/net/worker_codec.h"

#include "common/base/status.h"

namespace tandem {

v1::Role ToProto(WorkerRole role) {
  return role == WorkerRole::kTrainer ? v1::ROLE_TRAINER : v1::ROLE_ROLLOUT;
}

absl::StatusOr<WorkerRole> FromProto(v1::Role role) {
  if (role == v1::ROLE_TRAINER) return WorkerRole::kTrainer;
  if (role == v1::ROLE_ROLLOUT) return WorkerRole::kRollout;
  return InvalidArgument("role {} is neither trainer nor rollout", static_cast<int>(role));
}

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kAborted:
      return v1::FINISH_REASON_ABORTED;
    case FinishReason::kCut:
      return v1::FINISH_REASON_CUT;
    case FinishReason::kNone:
      break;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

FinishReason FromProto(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return FinishReason::kStop;
    case v1::FINISH_REASON_LENGTH:
      return FinishReason::kLength;
    case v1::FINISH_REASON_ABORTED:
      return FinishReason::kAborted;
    case v1::FINISH_REASON_CUT:
      return FinishReason::kCut;
    default:
      return FinishReason::kNone;
  }
}

v1::Segment ToProto(const Segment& segment) {
  v1::Segment proto;
  proto.set_begin(segment.begin);
  proto.set_length(segment.length);
  proto.set_trained(segment.trained);
  proto.set_weight_version(segment.weight_version);
  return proto;
}

Segment FromProto(const v1::Segment& proto) {
  return {.begin = proto.begin(),
          .length = proto.length(),
          .trained = proto.trained(),
          .weight_version = proto.weight_version()};
}

v1::Sample ToProto(const Sample& sample) {
  v1::Sample proto;
  proto.set_sample_id(sample.sample_id);
  proto.set_group(sample.group);
  proto.set_index(sample.index);
  proto.mutable_tokens()->Add(sample.tokens.begin(), sample.tokens.end());
  proto.set_prompt_tokens(sample.prompt_tokens);
  proto.mutable_log_probs()->Add(sample.log_probs.begin(), sample.log_probs.end());
  proto.mutable_versions()->Add(sample.versions.begin(), sample.versions.end());
  for (const Segment& segment : sample.segments) {
    *proto.add_segments() = ToProto(segment);
  }
  proto.set_finish_reason(ToProto(sample.finish_reason));
  proto.set_temperature(sample.temperature);
  proto.set_off_support(sample.off_support);
  proto.set_reward(sample.reward);
  proto.mutable_advantages()->Add(sample.advantages.begin(), sample.advantages.end());
  proto.mutable_ref_log_probs()->Add(sample.ref_log_probs.begin(), sample.ref_log_probs.end());
  proto.mutable_old_log_probs()->Add(sample.old_log_probs.begin(), sample.old_log_probs.end());
  proto.mutable_is_weights()->Add(sample.is_weights.begin(), sample.is_weights.end());
  proto.mutable_mask()->Add(sample.mask.begin(), sample.mask.end());
  return proto;
}

Sample FromProto(const v1::Sample& proto) {
  Sample sample;
  sample.sample_id = proto.sample_id();
  sample.group = proto.group();
  sample.index = proto.index();
  sample.tokens.assign(proto.tokens().begin(), proto.tokens().end());
  sample.prompt_tokens = proto.prompt_tokens();
  sample.log_probs.assign(proto.log_probs().begin(), proto.log_probs().end());
  sample.versions.assign(proto.versions().begin(), proto.versions().end());
  for (const v1::Segment& segment : proto.segments()) {
    sample.segments.push_back(FromProto(segment));
  }
  sample.finish_reason = FromProto(proto.finish_reason());
  sample.temperature = proto.temperature();
  sample.off_support = proto.off_support();
  sample.reward = proto.reward();
  sample.advantages.assign(proto.advantages().begin(), proto.advantages().end());
  sample.ref_log_probs.assign(proto.ref_log_probs().begin(), proto.ref_log_probs().end());
  sample.old_log_probs.assign(proto.old_log_probs().begin(), proto.old_log_probs().end());
  sample.is_weights.assign(proto.is_weights().begin(), proto.is_weights().end());
  sample.mask.assign(proto.mask().begin(), proto.mask().end());
  return sample;
}

v1::Continuation ToProto(const Continuation& continuation) {
  v1::Continuation proto;
  proto.mutable_tokens()->Add(continuation.tokens.begin(), continuation.tokens.end());
  proto.mutable_log_probs()->Add(continuation.log_probs.begin(), continuation.log_probs.end());
  proto.mutable_versions()->Add(continuation.versions.begin(), continuation.versions.end());
  proto.set_max_new_tokens(continuation.max_new_tokens);
  return proto;
}

Continuation FromProto(const v1::Continuation& proto) {
  return {.tokens = {proto.tokens().begin(), proto.tokens().end()},
          .log_probs = {proto.log_probs().begin(), proto.log_probs().end()},
          .versions = {proto.versions().begin(), proto.versions().end()},
          .max_new_tokens = proto.max_new_tokens()};
}

v1::SamplingParams ToProto(const SamplingParams& params) {
  v1::SamplingParams proto;
  proto.set_temperature(params.temperature);
  proto.set_top_p(params.top_p);
  proto.set_top_k(params.top_k);
  proto.set_max_tokens(params.max_tokens);
  proto.set_seed(params.seed);
  proto.mutable_stop_token_ids()->Add(params.stop_token_ids.begin(), params.stop_token_ids.end());
  for (const std::string& stop : params.stop) proto.add_stop(stop);
  proto.set_ignore_eos(params.ignore_eos);
  return proto;
}

SamplingParams FromProto(const v1::SamplingParams& proto) {
  SamplingParams params;
  params.temperature = proto.temperature();
  params.top_p = proto.top_p();
  params.top_k = proto.top_k();
  params.max_tokens = proto.max_tokens();
  params.seed = proto.seed();
  params.stop_token_ids.assign(proto.stop_token_ids().begin(), proto.stop_token_ids().end());
  params.stop.assign(proto.stop().begin(), proto.stop().end());
  params.ignore_eos = proto.ignore_eos();
  return params;
}

v1::Ledger ToProto(const LedgerSnapshot& ledger) {
  v1::Ledger proto;
  for (const LedgerEntry& entry : ledger.entries) {
    v1::LedgerEntry* out = proto.add_entries();
    out->set_tag(entry.tag);
    out->set_location(LocationName(entry.location));
    out->set_current_bytes(entry.current_bytes);
    out->set_peak_bytes(entry.peak_bytes);
  }
  proto.set_process_bytes(ledger.process_bytes);
  proto.set_process_peak_bytes(ledger.process_peak_bytes);
  proto.set_device_bytes(ledger.device_bytes);
  proto.set_device_peak_bytes(ledger.device_peak_bytes);
  proto.set_memory_bytes(ledger.memory_bytes);
  proto.set_memory_peak_bytes(ledger.memory_peak_bytes);
  proto.set_baseline_bytes(ledger.baseline_bytes);
  proto.set_resident_bytes(ledger.resident_bytes);
  proto.set_driver_total_bytes(ledger.driver_total_bytes);
  proto.set_driver_free_bytes(ledger.driver_free_bytes);
  return proto;
}

LedgerSnapshot FromProto(const v1::Ledger& proto) {
  LedgerSnapshot ledger;
  ledger.entries.reserve(static_cast<size_t>(proto.entries_size()));
  for (const v1::LedgerEntry& entry : proto.entries()) {
    ledger.entries.push_back({.tag = entry.tag(),
                              .location = ParseLocation(entry.location()),
                              .current_bytes = entry.current_bytes(),
                              .peak_bytes = entry.peak_bytes()});
  }
  ledger.process_bytes = proto.process_bytes();
  ledger.process_peak_bytes = proto.process_peak_bytes();
  ledger.device_bytes = proto.device_bytes();
  ledger.device_peak_bytes = proto.device_peak_bytes();
  ledger.memory_bytes = proto.memory_bytes();
  ledger.memory_peak_bytes = proto.memory_peak_bytes();
  ledger.baseline_bytes = proto.baseline_bytes();
  ledger.resident_bytes = proto.resident_bytes();
  ledger.driver_total_bytes = proto.driver_total_bytes();
  ledger.driver_free_bytes = proto.driver_free_bytes();
  return ledger;
}

v1::GenerationLoad ToProto(const GeneratorLoad& load) {
  v1::GenerationLoad proto;
  proto.set_queued(load.queued);
  proto.set_running(load.running);
  proto.set_waiting(load.waiting);
  proto.set_kv_blocks(load.kv_blocks);
  proto.set_kv_blocks_used(load.kv_blocks_used);
  proto.set_preemptions(load.preemptions);
  proto.set_generated_tokens(load.generated_tokens);
  proto.set_prefill_tokens(load.prefill_tokens);
  proto.set_prefix_hit_tokens(load.prefix_hit_tokens);
  proto.set_peak_version(load.peak_version);
  proto.set_peak_waiting(load.peak_waiting);
  proto.set_peak_kv_blocks_used(load.peak_kv_blocks_used);
  return proto;
}

GeneratorLoad FromProto(const v1::GenerationLoad& proto) {
  return {.queued = proto.queued(),
          .running = proto.running(),
          .waiting = proto.waiting(),
          .kv_blocks = proto.kv_blocks(),
          .kv_blocks_used = proto.kv_blocks_used(),
          .preemptions = proto.preemptions(),
          .generated_tokens = proto.generated_tokens(),
          .prefill_tokens = proto.prefill_tokens(),
          .prefix_hit_tokens = proto.prefix_hit_tokens(),
          .peak_version = proto.peak_version(),
          .peak_waiting = proto.peak_waiting(),
          .peak_kv_blocks_used = proto.peak_kv_blocks_used()};
}

v1::TrainingLoad ToProto(const TrainingLoad& load) {
  v1::TrainingLoad proto;
  proto.set_layer(load.layer);
  proto.set_shard_bytes(load.shard_bytes);
  v1::CollectiveReport* collective = proto.mutable_last_collective();
  collective->set_name(load.last_collective.name);
  collective->set_bytes(load.last_collective.bytes);
  collective->set_running(load.last_collective.running);
  collective->set_seconds(load.last_collective.seconds);
  collective->set_count(load.last_collective.count);
  return proto;
}

TrainingLoad FromProto(const v1::TrainingLoad& proto) {
  const v1::CollectiveReport& collective = proto.last_collective();
  return {.layer = proto.layer(),
          .shard_bytes = proto.shard_bytes(),
          .last_collective = {.name = collective.name(),
                              .bytes = collective.bytes(),
                              .running = collective.running(),
                              .seconds = collective.seconds(),
                              .count = collective.count()}};
}

v1::PhaseReport ToProto(const PhaseReport& report) {
  v1::PhaseReport proto;
  proto.set_phase(report.phase);
  proto.set_seconds(report.seconds);
  *proto.mutable_ledger() = ToProto(report.ledger);
  return proto;
}

PhaseReport FromProto(const v1::PhaseReport& proto) {
  return {.phase = proto.phase(), .seconds = proto.seconds(), .ledger = FromProto(proto.ledger())};
}

}  // namespace tandem
