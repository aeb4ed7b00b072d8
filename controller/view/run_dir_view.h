// A run as the files in its directory show it: ended, killed, or going on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

#include "controller/store/sqlite/run_reader.h"
#include "controller/view/run_view.h"

namespace tandem {

// Reads run.db, the blackbox, the locks and the logs, and changes none of them.
class RunDirView final : public RunView {
 public:
  // NotFound: there is no run; otherwise as SqliteRunReader::Open.
  static absl::StatusOr<std::unique_ptr<RunDirView>> Open(const std::string& run_dir);

  absl::StatusOr<v1::GetStatusResponse> GetStatus() override;
  absl::StatusOr<v1::ListStepsResponse> ListSteps(const v1::ListStepsRequest& request) override;
  absl::StatusOr<v1::ListSamplesResponse> ListSamples(
      const v1::ListSamplesRequest& request) override;
  // Which of the steps no checkpoint has.
  std::string NoteOnSteps(int64_t first, int64_t last) override;

  const std::string& run_dir() const { return run_dir_; }
  // Null: the run ended before it had any.
  SqliteRunReader* records() { return records_.get(); }

 private:
  RunDirView(std::string run_dir, std::unique_ptr<SqliteRunReader> records)
      : run_dir_(std::move(run_dir)), records_(std::move(records)) {}

  const std::string run_dir_;
  const std::unique_ptr<SqliteRunReader> records_;
};

}  // namespace tandem
