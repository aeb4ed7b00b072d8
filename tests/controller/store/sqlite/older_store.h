// Makes a run.db of this build what a build of an older schema wrote.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <catch2/catch.hpp>

#include "controller/store/sqlite/database.h"

namespace tandem::testing {

class OlderStore {
 public:
  // The file at `path`, as of schema version `version`, 1 to 5.
  OlderStore(const std::string& path, int64_t version)
      : db_(SqliteDatabase::Open(path).value()), version_(version) {
    TakeVersion6Away();
    if (version_ < 5) TakeVersion5Away();
    if (version_ < 4) Execute("ALTER TABLE samples DROP COLUMN segments");
    if (version_ < 3) {
      Execute("ALTER TABLE runs DROP COLUMN memory_plan");
      Execute("ALTER TABLE phases DROP COLUMN workers");
    }
    if (version_ < 2) Execute("ALTER TABLE runs DROP COLUMN kernel_sets");
    Execute("PRAGMA user_version = " + std::to_string(version_));
    // Only the file, as from another machine.
    Execute("PRAGMA journal_mode=DELETE");
  }

 private:
  void Execute(const std::string& sql) const {
    const absl::Status status = db_->Execute(sql);
    INFO(sql << ": " << status);
    REQUIRE(status.ok());
  }
  void TakeVersion6Away() const {
    for (const char* table : {"histograms", "updates", "syncs", "load", "eval_samples"}) {
      Execute(std::string("DROP TABLE ") + table);
      Execute(std::string("DROP TABLE undone_") + table);
    }
    Execute(
        "UPDATE samples SET (prompt, ground_truth) = "
        "(SELECT text, truth FROM prompts WHERE id = prompt_id)");
    for (const char* index :
         {"samples_by_reward", "samples_by_prompt", "undone_samples_by_prompt"}) {
      Execute(std::string("DROP INDEX ") + index);
    }
    for (const char* column :
         {"prompt_id", "prompt_tokens", "min_log_prob", "repetition", "arrived_us", "evicted"}) {
      Execute(std::string("ALTER TABLE samples DROP COLUMN ") + column);
      Execute(std::string("ALTER TABLE undone_samples DROP COLUMN ") + column);
    }
    Execute("DROP TABLE prompts");
  }
  void TakeVersion5Away() const {
    for (const char* table : {"metric_values", "metric_names", "events", "groups", "marks"}) {
      Execute(std::string("DROP TABLE ") + table);
    }
    for (const char* table : {"steps", "phases", "samples", "evaluations", "groups"}) {
      Execute(std::string("DROP TABLE undone_") + table);
    }
    for (const char* column : {"ended_at", "outcome", "error", "attempt"}) {
      Execute(std::string("ALTER TABLE runs DROP COLUMN ") + column);
    }
    Execute("ALTER TABLE steps DROP COLUMN finished_at");
    Execute("ALTER TABLE steps ADD COLUMN finished_at TEXT");
  }

  const std::unique_ptr<SqliteDatabase> db_;
  const int64_t version_;
};

}  // namespace tandem::testing
