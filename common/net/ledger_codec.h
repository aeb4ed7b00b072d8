// Ledgers and phase reports: struct <-> proto.
#pragma once

#include "common/types/ledger_snapshot.h"
#include "tandem/v1/types.pb.h"

namespace tandem {

v1::Ledger ToProto(const LedgerSnapshot& ledger);
LedgerSnapshot FromProto(const v1::Ledger& proto);

v1::PhaseReport ToProto(const PhaseReport& report);
PhaseReport FromProto(const v1::PhaseReport& proto);

}  // namespace tandem
