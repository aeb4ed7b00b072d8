// Which steps in the records of a run have no checkpoint.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

class SqliteRunReader;

// A line for who lists the steps `first` to `last` of the run in `run_dir`: which of them are after
// its newest complete checkpoint, and so are lost and made again where the run is continued from
// there. "": none. The checkpoints are looked for where the newest start of the run kept them, also
// if the run directory has been moved since.
std::string UnsavedStepsText(const std::string& run_dir,
                             SqliteRunReader& records,
                             int64_t first,
                             int64_t last);

}  // namespace tandem
