// The API of the dashboard: what pages and scripts read of runs, as docs/reference/http_api.md
// lists it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/http/message.h"
#include "controller/view/run_catalog.h"
#include "controller/view/run_facts.h"
#include "controller/view/token_view.h"

namespace tandem {

// The rows of runs that have ended, as the list of runs shows them: a run is read again once a file
// of it has changed. Thread-safe.
class EndedRows {
 public:
  static constexpr size_t kMost = 10'000;

  // JSON; of a run that goes on it is read anew.
  std::string Row(const CatalogEntry& entry, RunFactsReader& reader);

 private:
  struct Kept {
    std::string stamp, json;
  };

  Mutex mutex_;
  std::map<std::string, Kept> rows_ ABSL_GUARDED_BY(mutex_);
};

// Reads the files of the runs anew for each request, but for EndedRows. Thread-safe.
class RunApi {
 public:
  // `catalog` must outlive the API.
  explicit RunApi(const RunCatalog& catalog) : catalog_(catalog) {}

  // `route`: the parts of the path after /api/v1.
  HttpResponse Answer(const HttpRequest& request, const std::vector<std::string>& route);

 private:
  const RunCatalog& catalog_;
  RunFactsReader facts_;
  EndedRows ended_;
  TokenReader tokens_;
};

}  // namespace tandem
