// tandemctl report: a run's report from its records, also while it goes on.
#pragma once

#include <ostream>
#include <string>

#include <absl/status/status.h>

namespace tandem {

struct ReportOptions {
  std::string run_dir;
  std::string html;  // file to write; "": report.html in the run directory
  bool json = false;
};

// Reads RUN_DIR/run.db, which it does not change, and writes the page. InvalidArgument: no run
// directory is given, or JSON is asked for, which this page is not. NotFound: there is no run;
// other errors as SqliteRunReader and WriteFileAtomically.
absl::Status ReportCommand(const ReportOptions& options, std::ostream& out);

}  // namespace tandem
