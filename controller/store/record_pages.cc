#include "controller/store/record_pages.h"

#include <vector>

#include "common/base/status.h"

namespace tandem {

absl::Status ForEachStep(RunRecords& records,
                         bool undone,
                         const std::function<void(const StepRecord&)>& visit) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<StepRecord> newest,
                          records.ListSteps({.limit = 1, .undone = undone, .workers = false}));
  const int64_t last = newest.empty() ? -1 : newest.back().step;
  for (int64_t first = 0; first <= last; first += kRecordsOfPage) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<StepRecord> page,
                            records.ListSteps({.first_step = first,
                                               .last_step = first + kRecordsOfPage - 1,
                                               .undone = undone,
                                               .workers = false}));
    for (const StepRecord& step : page) visit(step);
  }
  return absl::OkStatus();
}

absl::Status ForEachEvaluation(RunRecords& records,
                               EvaluationQuery query,
                               const std::function<void(const EvaluationRecord&)>& visit) {
  query.limit = kRecordsOfPage;
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<EvaluationRecord> page,
                            records.ListEvaluations(query));
    for (const EvaluationRecord& evaluation : page) visit(evaluation);
    if (static_cast<int64_t>(page.size()) < kRecordsOfPage) return absl::OkStatus();
    query.first_step = page.back().step + 1;
  }
}

}  // namespace tandem
