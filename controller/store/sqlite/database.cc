#include "controller/store/sqlite/database.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sqlite3.h>

#include "common/base/disk_refusal.h"
#include "common/base/status.h"

namespace tandem {
namespace {

// Whether a full or failing disk is the reason, which the system's error number tells where SQLite
// has one.
bool IsRefusedByDisk(int result, int system_error) {
  if (result == SQLITE_IOERR_NOMEM) return false;
  switch (result & 0xff) {
    case SQLITE_FULL:
      return true;
    case SQLITE_IOERR:
      return system_error == 0 || WaitingMayHelp(system_error);
    case SQLITE_CANTOPEN:
      return WaitingMayHelp(system_error);
    default:
      return false;
  }
}

absl::StatusCode CodeOf(int result) {
  switch (result & 0xff) {
    case SQLITE_FULL:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::StatusCode::kDataLoss;
    case SQLITE_IOERR:
      return absl::StatusCode::kDataLoss;
    case SQLITE_INTERRUPT:
      return absl::StatusCode::kDeadlineExceeded;
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return absl::StatusCode::kPermissionDenied;
    default:  // includes BUSY and LOCKED: another program holds the file, as the message says
      return absl::StatusCode::kInternal;
  }
}

// The error `result` of the database, with the message `text`.
absl::Status ErrorWithText(sqlite3* db, int result, const std::string& text) {
  const int system_error = sqlite3_system_errno(db);
  const bool is_refused = IsRefusedByDisk(result, system_error);
  const absl::StatusCode code = is_refused && IsDiskFull(system_error)
                                    ? absl::StatusCode::kResourceExhausted
                                    : CodeOf(result);
  const absl::Status status(code, text);
  return is_refused ? WithDiskRefused(status) : status;
}

absl::Status ErrorOf(sqlite3* db, int result) {
  const char* file = sqlite3_db_filename(db, "main");
  if ((result & 0xff) == SQLITE_INTERRUPT) {
    return MakeStatus(absl::StatusCode::kDeadlineExceeded,
                      "reading {} took longer than it may: ask for fewer steps, names or rows",
                      file == nullptr ? "" : file);
  }
  return ErrorWithText(
      db, result, fmt::format("database {}: {}", file == nullptr ? "" : file, sqlite3_errmsg(db)));
}

absl::Status OpenError(sqlite3* db, int result, const std::string& path) {
  if (db == nullptr) return Internal("cannot open the database {}: out of memory", path);
  return ErrorWithText(db, result,
                       fmt::format("cannot open the database {}: {}", path, sqlite3_errmsg(db)));
}

}  // namespace

SqliteStatement::SqliteStatement(sqlite3* db, sqlite3_stmt* statement)
    : db_(db), statement_(statement, &sqlite3_finalize) {}

void SqliteStatement::BindAt(int index, int64_t value) {
  sqlite3_bind_int64(statement_.get(), index, value);
}
void SqliteStatement::BindAt(int index, double value) {
  sqlite3_bind_double(statement_.get(), index, value);
}
void SqliteStatement::BindAt(int index, const std::string& value) {
  sqlite3_bind_text(statement_.get(), index, value.data(), static_cast<int>(value.size()),
                    SQLITE_TRANSIENT);
}

void SqliteStatement::BindNull(int index) { sqlite3_bind_null(statement_.get(), index); }

absl::StatusOr<bool> SqliteStatement::Step() {
  const int result = sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  return ErrorOf(db_, result);
}

absl::Status SqliteStatement::Run() {
  TANDEM_ASSIGN_OR_RETURN(const bool row, Step());
  if (row) return Internal("a statement that should change the database gave a row");
  sqlite3_reset(statement_.get());
  return absl::OkStatus();
}

void SqliteStatement::Reset() { sqlite3_reset(statement_.get()); }

int64_t SqliteStatement::Int(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}
double SqliteStatement::Real(int column) const {
  return sqlite3_column_double(statement_.get(), column);
}
std::optional<double> SqliteStatement::MaybeReal(int column) const {
  return IsNull(column) ? std::nullopt : std::optional(Real(column));
}
std::string SqliteStatement::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  if (text == nullptr) return "";
  return {text, static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

bool SqliteStatement::IsNull(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

bool SqliteStatement::IsInt(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_INTEGER;
}

SqliteDatabase::SqliteDatabase(sqlite3* db, std::string path)
    : db_(db, &sqlite3_close_v2), path_(std::move(path)) {}

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path) {
  sqlite3* handle = nullptr;
  const int result =
      sqlite3_open_v2(path.c_str(), &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<SqliteDatabase> db(new SqliteDatabase(handle, path));
  if (result != SQLITE_OK) return OpenError(handle, result, path);
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, 5000);
  TANDEM_RETURN_IF_ERROR(db->Execute("PRAGMA journal_mode=WAL"));
  TANDEM_RETURN_IF_ERROR(db->Execute("PRAGMA synchronous=FULL"));
  TANDEM_RETURN_IF_ERROR(db->Execute("PRAGMA foreign_keys=ON"));
  return db;
}

namespace {

// A path as SQLite's URI has it: "?", "#" and "%" would end or change the path.
std::string UriPath(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '?' || c == '#' || c == '%') {
      uri += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      uri += c;
    }
  }
  return uri;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::OpenUri(const std::string& path,
                                                                        const char* parameters) {
  sqlite3* handle = nullptr;
  const int result =
      sqlite3_open_v2((UriPath(path) + parameters).c_str(), &handle,
                      SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<SqliteDatabase> db(new SqliteDatabase(handle, path));
  if (result != SQLITE_OK) return OpenError(handle, result, path);
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, 5000);
  // The first statement that reads the file.
  TANDEM_RETURN_IF_ERROR(db->Execute("SELECT COUNT(*) FROM sqlite_master"));
  return db;
}

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::OpenReadOnly(
    const std::string& path) {
  // Whoever writes keeps a log beside the file. Without one, nobody does, and the file can be read
  // without the locks for which SQLite would create files.
  constexpr char kNobodyWrites[] = "?mode=ro&immutable=1";
  std::error_code error;
  const auto log_bytes = std::filesystem::file_size(path + "-wal", error);
  if (error) return OpenUri(path, kNobodyWrites);
  absl::StatusOr<std::unique_ptr<SqliteDatabase>> db = OpenUri(path, "?mode=ro");
  if (db.ok() || !absl::IsPermissionDenied(db.status())) return db;
  if (log_bytes == 0) return OpenUri(path, kNobodyWrites);
  return Annotate(db.status(),
                  fmt::format("{0}-wal has rows that can be read only where {0}-shm can be made: "
                              "copy both files into a folder that you may write, and read there",
                              path));
}

void SqliteDatabase::LimitTime(absl::Duration limit) {
  constexpr int kStepsBetweenLooks = 1000;
  deadline_ = std::make_unique<Instant>(RealClock().Now() + limit);
  sqlite3_progress_handler(db_.get(), kStepsBetweenLooks, &IsLate, deadline_.get());
}

int SqliteDatabase::IsLate(void* deadline) {
  return RealClock().Now() >= *static_cast<const Instant*>(deadline) ? 1 : 0;
}

absl::Status SqliteDatabase::Execute(const std::string& sql) {
  const int result = sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return result == SQLITE_OK ? absl::OkStatus() : ErrorOf(db_.get(), result);
}

absl::StatusOr<SqliteStatement> SqliteDatabase::Prepare(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const int result =
      sqlite3_prepare_v2(db_.get(), sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (result != SQLITE_OK) return ErrorOf(db_.get(), result);
  return SqliteStatement(db_.get(), statement);
}

absl::StatusOr<SqliteTransaction> SqliteTransaction::Begin(SqliteDatabase* db) {
  TANDEM_RETURN_IF_ERROR(db->Execute("BEGIN IMMEDIATE"));
  return SqliteTransaction(db);
}

SqliteTransaction::SqliteTransaction(SqliteTransaction&& other) noexcept
    : db_(std::exchange(other.db_, nullptr)) {}

SqliteTransaction::~SqliteTransaction() {
  // A failed statement may have rolled back already, so an error here means nothing.
  if (db_ != nullptr) db_->Execute("ROLLBACK").IgnoreError();
}

absl::Status SqliteTransaction::Commit() {
  TANDEM_RETURN_IF_ERROR(db_->Execute("COMMIT"));
  db_ = nullptr;
  return absl::OkStatus();
}

}  // namespace tandem
