// The tables of run.db.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "controller/store/sqlite/database.h"

namespace tandem {

// A table with one row per step, sample and so on. Rows of steps that a recovery repeats move from
// `name` to undone_`name`, which has the column undone_by and then the same ones.
struct RecordTable {
  std::string name;
  std::vector<std::string> columns;
};

// steps, phases, samples, evaluations, groups and so on: each has the column "step".
const std::vector<RecordTable>& RecordTables();
const RecordTable& TableNamed(const std::string& name);

// The tables whose rows have texts of samples, and the steps of these.
const std::vector<std::string>& TablesOfTexts();

// The schema version of run.db that this build writes (PRAGMA user_version).
int64_t StoreSchemaVersion();

// FailedPrecondition: a newer build has written the file.
absl::StatusOr<int64_t> ReadSchemaVersion(SqliteDatabase* db);

// Migrates the file to StoreSchemaVersion, with one transaction per version. FailedPrecondition: a
// newer build has written the file, which is not changed.
absl::Status MigrateStore(SqliteDatabase* db);

}  // namespace tandem
