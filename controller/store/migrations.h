// The schema of run.db and how older files come up to it.
#pragma once

#include <absl/status/status.h>

#include "controller/store/sqlite.h"

namespace tandem {

// The version this build writes (PRAGMA user_version).
int64_t StoreSchemaVersion();

// Brings the file to StoreSchemaVersion, one migration per transaction. FailedPrecondition: the
// file was written by a newer build; nothing is changed then.
absl::Status MigrateStore(SqliteDatabase* db);

}  // namespace tandem
