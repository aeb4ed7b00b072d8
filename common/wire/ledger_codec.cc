#include "common/wire/ledger_codec.h"

namespace tandem {
namespace {

std::string LocationName(Location location) {
  switch (location) {
    case Location::kHost:
      return "host";
    case Location::kFile:
      return "file";
    default:
      return "device";
  }
}

Location ParseLocation(const std::string& name) {
  if (name == "host") return Location::kHost;
  if (name == "file") return Location::kFile;
  return Location::kDevice;
}

}  // namespace

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
  return proto;
}

LedgerSnapshot FromProto(const v1::Ledger& proto) {
  LedgerSnapshot ledger;
  for (const v1::LedgerEntry& entry : proto.entries()) {
    ledger.entries.push_back({.tag = entry.tag(),
                              .location = ParseLocation(entry.location()),
                              .current_bytes = entry.current_bytes(),
                              .peak_bytes = entry.peak_bytes()});
  }
  ledger.process_bytes = proto.process_bytes();
  ledger.process_peak_bytes = proto.process_peak_bytes();
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
