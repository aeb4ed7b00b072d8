// The table of prompts: each text once, whatever the number of its samples and steps.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/store/sqlite/database.h"

namespace tandem {

// Numbers the prompts that are recorded together. Not thread-safe. Errors as SqliteDatabase.
class PromptTable {
 public:
  // `db` must outlive the result.
  static absl::StatusOr<PromptTable> Open(SqliteDatabase* db);

  // The number of a prompt with its ground truth. Adds it where it is new, and brings back the
  // texts of one whose samples had lost theirs.
  absl::StatusOr<int64_t> IdOf(const std::string& text, const std::string& truth);

 private:
  PromptTable(SqliteStatement insert, SqliteStatement select)
      : insert_(std::move(insert)), select_(std::move(select)) {}

  SqliteStatement insert_, select_;
  // The last one: samples of a prompt come one after another.
  std::string text_, truth_;
  int64_t id_ = 0;
};

// Forgets the texts of prompts of the steps `first` to `last`, of which no later sample is, but not
// their numbers.
absl::Status ForgetPrompts(SqliteDatabase* db, int64_t first, int64_t last);

}  // namespace tandem
