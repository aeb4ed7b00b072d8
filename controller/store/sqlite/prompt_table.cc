#include "controller/store/sqlite/prompt_table.h"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"
#include "common/types/xxh3.h"
#include "controller/store/sqlite/schema.h"

namespace tandem {
namespace {

std::string DigestOf(const std::string& text, const std::string& truth) {
  Xxh3Stream hash;
  const uint64_t bytes = text.size();  // where the one ends and the other begins
  hash.Append(&bytes, sizeof(bytes));
  hash.Append(text.data(), text.size());
  hash.Append(truth.data(), truth.size());
  return hash.Finish().Hex();
}

}  // namespace

absl::StatusOr<PromptTable> PromptTable::Open(SqliteDatabase* db) {
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      db->Prepare("INSERT INTO prompts (digest, text, truth) VALUES (?, ?, ?) ON CONFLICT (digest) "
                  "DO UPDATE SET text = excluded.text, truth = excluded.truth WHERE text IS NULL"));
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement select,
                          db->Prepare("SELECT id FROM prompts WHERE digest = ?"));
  return PromptTable(std::move(insert), std::move(select));
}

absl::StatusOr<int64_t> PromptTable::IdOf(const std::string& text, const std::string& truth) {
  if (id_ != 0 && text == text_ && truth == truth_) return id_;
  const std::string digest = DigestOf(text, truth);
  TANDEM_RETURN_IF_ERROR(insert_.Bind(digest, text, truth).Run());
  select_.Reset();
  TANDEM_RETURN_IF_ERROR(select_.Bind(digest).Step().status());
  id_ = select_.Int(0);
  select_.Reset();
  text_ = text;
  truth_ = truth;
  return id_;
}

absl::Status ForgetPrompts(SqliteDatabase* db, int64_t first, int64_t last) {
  std::vector<std::string> old, needed;
  for (const std::string& table : TablesOfTexts()) {
    old.push_back(
        fmt::format("SELECT prompt_id FROM {} WHERE step BETWEEN {} AND {}", table, first, last));
    needed.push_back(fmt::format(
        "NOT EXISTS (SELECT 1 FROM {0} AS s WHERE s.prompt_id = prompts.id AND s.step > {1})",
        table, last));
  }
  return db->Execute(
      fmt::format("UPDATE prompts SET text = NULL, truth = NULL WHERE id IN ({}) AND {}",
                  fmt::join(old, " UNION "), fmt::join(needed, " AND ")));
}

}  // namespace tandem
