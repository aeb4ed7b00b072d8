// How the numbers of a step's samples and tokens spread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/types/histogram.h"
#include "controller/store/run_store.h"
#include "controller/store/sample_store.h"

namespace tandem {

// The histograms of StepRecord::histograms. `metas` and `records` are of the same samples, whose
// arrays are read from `samples` twice, one sample at a time. Numbers that are not finite are left
// out, and so is a histogram without a number. Errors as SampleStore::Read.
absl::StatusOr<std::map<std::string, Histogram>> StepHistograms(
    const SampleStore& samples,
    const std::vector<SampleMeta>& metas,
    const std::vector<SampleRecord>& records);

}  // namespace tandem
