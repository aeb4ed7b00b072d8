#include "common/net/ledger_codec.h"

namespace tandem {

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
  for (const v1::LedgerEntry& entry : proto.entries()) {
    ledger.entries.push_back({.tag = entry.tag(),
                              .location = LocationOf(entry.location()),
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
