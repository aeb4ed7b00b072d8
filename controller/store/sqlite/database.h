// SQLite behind absl::Status: a connection and a prepared statement.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tandem {

// One prepared statement. Parameters are numbered from 1, columns from 0.
class SqliteStatement {
 public:
  // Binds the statement's parameters, in their order.
  template <typename... Values>
  SqliteStatement& Bind(const Values&... values) {
    int index = 0;
    (BindAt(++index, values), ...);
    return *this;
  }
  // Binds one parameter, for statements of which the number of parameters varies.
  void BindAt(int index, int64_t value);
  void BindAt(int index, double value);
  void BindAt(int index, const std::string& value);

  // True: a row can be read; false: there are no more.
  absl::StatusOr<bool> Step();
  // Runs a statement that returns no rows, and resets it for the next binding.
  absl::Status Run();
  // Makes a statement that has given rows ready for the next binding.
  void Reset();

  int64_t Int(int column) const;
  double Real(int column) const;
  std::optional<double> MaybeReal(int column) const;
  std::string Text(int column) const;
  // NULL reads as 0 and "".
  bool IsNull(int column) const;
  // Whether the row has a whole number there, whatever the column was declared as.
  bool IsInt(int column) const;

 private:
  friend class SqliteDatabase;
  SqliteStatement(sqlite3* db, sqlite3_stmt* statement);
  // Without a value: NULL.
  template <typename Value>
  void BindAt(int index, const std::optional<Value>& value) {
    if (value) BindAt(index, *value);
    if (!value) BindNull(index);
  }
  void BindNull(int index);
  sqlite3* db_;
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement_;
};

// A connection in WAL mode with full durability. Not thread-safe. Errors name the file:
// ResourceExhausted (disk full), DataLoss (corrupt, not a database, or an I/O error),
// PermissionDenied (cannot be opened or written), Internal (locked by another program for more than
// five seconds, or a bug in the SQL). Those of a full or failing disk are marked (disk_refusal.h),
// and leave nothing of their transaction.
class SqliteDatabase {
 public:
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path);
  // Opens an existing file to read: changes nothing in its folder, needs no right to write there,
  // and reads while another program writes. A file whose log has to be read is an exception: where
  // SQLite's index of the log is missing, it is made beside it.
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> OpenReadOnly(const std::string& path);

  // All that is asked from now on takes `limit` together; what takes longer is DeadlineExceeded.
  void LimitTime(absl::Duration limit);
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<SqliteStatement> Prepare(const std::string& sql);

 private:
  SqliteDatabase(sqlite3* db, std::string path);
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> OpenUri(const std::string& path,
                                                                 const char* parameters);
  static int IsLate(void* deadline);
  std::unique_ptr<Instant> deadline_;  // null: no limit; db_ holds its address
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> db_;
  std::string path_;
};

// Begins a transaction, which is rolled back unless it is committed.
class SqliteTransaction {
 public:
  static absl::StatusOr<SqliteTransaction> Begin(SqliteDatabase* db);
  SqliteTransaction(SqliteTransaction&& other) noexcept;
  SqliteTransaction& operator=(SqliteTransaction&&) = delete;
  ~SqliteTransaction();
  absl::Status Commit();

 private:
  explicit SqliteTransaction(SqliteDatabase* db) : db_(db) {}
  SqliteDatabase* db_;  // null once committed or moved from
};

}  // namespace tandem
